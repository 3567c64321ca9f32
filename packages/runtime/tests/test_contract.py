"""Every name of torch that the package spells is there, private ones too."""

import torch

from intarsia_testkit.torch_contract import check_torch_names

BUILT = "a build of torch without CUDA lacks it"
OPTIONAL = dict.fromkeys(("torch._C._cuda_getCurrentRawStream", "torch._C._cuda_clearCublasWorkspaces"), BUILT)


def test_torch_has_what_the_package_uses():
    check_torch_names(
        "intarsia_runtime",
        "torch.Tensor._version",
        "torch.Tensor._is_zerotensor",
        "torch.UntypedStorage._cdata",
        optional={} if torch.backends.cuda.is_built() else OPTIONAL,
    )
