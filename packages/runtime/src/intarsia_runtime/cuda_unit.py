"""Compiled GPU kernels -> one small C++ unit that launches them: the native launch list.

The unit carries the machine code of every kernel and has one C entry for each run of kernels between extern calls, so
a run costs one call from Python. It is header-free and finds the driver's functions in libcuda at its first use.
Kernels are loaded independently of a context (`cuLibraryLoadData`), so one unit serves every device.

An entry takes the addresses of its buffers, its size symbols and a stream, all as 64-bit words, and returns the
driver's error number, 0 when all launches were accepted.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from intarsia_ir.errors import UnsupportedError
from intarsia_ir.records import KernelSource, Launch

__all__ = ["launch_list", "segments"]

# a call with so many buffers keeps the host busy for longer than another call costs
MOST_BUFFERS = 64

_PRELUDE = """
typedef unsigned long long u64;
typedef long long i64;
extern "C" void* dlopen(const char*, int);
extern "C" void* dlsym(void*, const char*);
struct Kernel { const char* image; const char* name; int shared, threads; void* handle; };
typedef unsigned u32;
static int (*launch)(void*, u32, u32, u32, u32, u32, u32, u32, void*, void**, void**);
static int (*attribute)(void*, int, u64);
static int (*retain)(void**, int);
static int (*make_current)(void*);

template <typename F> static bool find(void* driver, const char* name, F& function) {
  function = (F)dlsym(driver, name);
  return function != 0;
}

static int load(Kernel* kernels, int n) {
  int (*load_data)(void**, const void*, void*, void*, unsigned, void*, void*, unsigned);
  int (*get_kernel)(void**, void*, const char*);
  int (*set_attribute)(int, int, void*, int);
  int (*count_devices)(int*);
  void* driver = dlopen("libcuda.so.1", 2);
  if (!driver || !find(driver, "cuLibraryLoadData", load_data) || !find(driver, "cuLibraryGetKernel", get_kernel) ||
      !find(driver, "cuKernelSetAttribute", set_attribute) || !find(driver, "cuDeviceGetCount", count_devices) ||
      !find(driver, "cuPointerGetAttribute", attribute) || !find(driver, "cuDevicePrimaryCtxRetain", retain) ||
      !find(driver, "cuCtxSetCurrent", make_current) || !find(driver, "cuLaunchKernel", launch))
    return -1;
  int devices = 0;
  if (int error = count_devices(&devices)) return error;
  for (int k = 0; k < n; k++) {
    void* library;
    if (int error = load_data(&library, kernels[k].image, 0, 0, 0, 0, 0, 0)) return error;
    if (int error = get_kernel(&kernels[k].handle, library, kernels[k].name)) return error;
    // 8: the limit of dynamic shared memory, which is 48 KiB unless asked for
    for (int device = 0; device < devices && kernels[k].shared > 48 * 1024; device++)
      if (int error = set_attribute(8, kernels[k].shared, kernels[k].handle, device)) return error;
  }
  return 0;
}

// A thread that has called nothing of CUDA yet, as autograd's own at a first backward pass, has no context: it gets
// that of the device on which a buffer lies (9: the attribute that tells it).
static int enter(u64 buffer) {
  int device;
  void* context;
  if (int error = attribute(&device, 9, buffer)) return error;
  if (int error = retain(&context, device)) return error;
  return make_current(context);
}

static int run(const Kernel& kernel, i64 x, i64 y, void* stream, void** arguments) {
  if (x <= 0 || y <= 0) return 0;
  if (x > 2147483647 || y > 65535) return 1;
  for (int attempt = 0;; attempt++) {
    int error = launch(kernel.handle, (u32)x, (u32)y, 1, kernel.threads, 1, 1, kernel.shared, stream, arguments, 0);
    if (error != 201 || attempt || enter(*(u64*)arguments[0])) return error;  // 201: there is no context
  }
}
"""


def segments(source: KernelSource) -> tuple[Launch, ...]:
    """Return one launch for each run of neighbouring launches of a Triton unit: what one native call does.

    Example:
        >>> first = Launch("kernel0", ("x", "y"), (), (0, 1), ("4",))
        >>> second = Launch("kernel1", ("y", "z"), (), (1, 2), ("4",))
        >>> segments(KernelSource("", "triton", launches=(first, second)))[0].buffers
        ('x', 'y', 'z')
    """
    return tuple(_merged(f"seg{n}", run) for n, run in enumerate(_runs(source.launches)))


def launch_list(source: KernelSource, facts: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the C++ unit of a Triton unit. It expects `<kernel>.bin` beside it when it is compiled.

    Args:
        source: What was emitted.
        facts: Function name -> what the worker said about the compiled kernel.

    Raises:
        UnsupportedError: `runtime.triton_scratch`: a kernel needs what the launch list doesn't offer.
    """
    names = sorted(facts)
    for name in names:
        if (
            any(facts[name].get(k) for k in ("global_scratch_size", "profile_scratch_size"))
            or facts[name]["num_ctas"] != 1
        ):
            raise UnsupportedError(f"{name} needs scratch memory or a cluster", code="runtime.triton_scratch")
    runs = _runs(source.launches)
    entries = [_entry(_merged(f"seg{n}", run), run, names) for n, run in enumerate(runs)]
    return "".join([_PRELUDE, *map(_image, names), _kernels(names, facts), *entries])


def _runs(launches: Sequence[Launch]) -> list[list[Launch]]:
    """Group launches whose items follow each other; several may cover the same item.

    A run that takes many buffers ends between items, so that the GPU works on it while the host allocates the rest.
    """
    runs: list[list[Launch]] = []
    taken: set[str] = set()
    for launch in launches:
        end = runs[-1][-1].items[1] if runs else -1
        if launch.items[0] > end or (launch.items[0] == end and len(taken | {*launch.buffers}) > MOST_BUFFERS):
            runs.append([])
            taken = set()
        runs[-1].append(launch)
        taken |= {*launch.buffers}
    return runs


def _merged(entry: str, run: Sequence[Launch]) -> Launch:
    buffers = tuple(dict.fromkeys(itertools.chain.from_iterable(launch.buffers for launch in run)))
    grids = (name for launch in run for text in launch.grid for name in _symbols(text))
    sizes = tuple(sorted({*itertools.chain.from_iterable(launch.sizes for launch in run), *grids}))
    return replace(
        run[0], entry=entry, buffers=buffers, sizes=sizes, items=(run[0].items[0], run[-1].items[1]), grid=()
    )


def _symbols(grid: str) -> list[str]:
    words = "".join(c if c.isalnum() or c == "_" else " " for c in grid).split()
    return [word for word in words if not word.isdigit()]


def _image(name: str) -> str:
    """Return the statement that places a kernel's machine code in the unit."""
    return (
        f'asm(".section .rodata\\n.balign 64\\nimage_{name}:\\n.incbin \\"{name}.bin\\"\\n.byte 0\\n.previous\\n");\n'
        f'extern "C" __attribute__((visibility("hidden"))) const char image_{name}[];\n'
    )


def _kernels(names: Sequence[str], facts: Mapping[str, Mapping[str, Any]]) -> str:
    rows = [
        f'  {{image_{name}, "{facts[name]["name"]}", {facts[name]["shared"]}, '
        f"{facts[name]['num_warps'] * facts[name]['warp_size']}, 0}},\n"
        for name in names
    ]
    return (
        f"static Kernel kernels[] = {{\n{''.join(rows)}}};\n"
        f'extern "C" int intarsia_load() {{ return load(kernels, {len(names)}); }}\n'
    )


def _entry(segment: Launch, run: Sequence[Launch], names: Sequence[str]) -> str:
    words = {name: f"b{n}" for n, name in enumerate(segment.buffers)}
    parameters = [f"u64 {word}" for word in words.values()] + [f"i64 {name}" for name in segment.sizes]
    lines = [f'extern "C" int {segment.entry}({", ".join([*parameters, "void* stream"])}) {{', "  u64 none = 0;"]
    # the kernels were compiled for aligned addresses
    lines.append(f"  if (({' | '.join(words.values())}) & 15) return -2;")
    for launch in run:
        taken = [f"&{words[b]}" for b in launch.buffers] + [f"&{s}" for s in launch.sizes]
        # Triton's kernels end in two pointers to scratch memory, which these kernels don't use
        arguments = ", ".join([*taken, "&none", "&none"])
        x, y = (*(text.replace("//", "/") for text in launch.grid), "1")[:2]
        number = names.index(launch.entry)
        lines.append(f"  {{ void* arguments[] = {{{arguments}}};")
        lines.append(f"    if (int error = run(kernels[{number}], {x}, {y}, stream, arguments)) return error; }}")
    return "\n".join([*lines, "  return 0;", "}", ""])
