// Loads artefacts of intarsia.export and runs them against libtorch, without Python.
//
//     intarsia::Program program("model.safetensors");
//     std::vector<c10::IValue> results = program({x});
//
// Arguments are the tensors among those of the exported call, in their order; results are the leaves of what it returned.
// Link with libtorch_cpu and libc10. The plan of each variant (`host_plan.py` has its grammar) is read once; at each call
// its steps are carried out: kernels are called by address, operators through the dispatcher.
#pragma once

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

namespace intarsia {

using Words = std::vector<std::string>;
using Numbers = std::vector<int64_t>;

[[noreturn]] inline void fail(const std::string& what) { throw std::runtime_error("intarsia: " + what); }

// ---- JSON: what the header of the file and the head of the artefact need --------------------------------------------

struct Json {
  std::string text;  // of a string, or of a number as it is written
  std::vector<Json> items;
  std::vector<std::pair<std::string, Json>> fields;

  const Json& at(const std::string& name) const {
    for (const auto& field : fields)
      if (field.first == name) return field.second;
    fail("the file has no field '" + name + "'");
  }
  bool has(const std::string& name) const {
    for (const auto& field : fields)
      if (field.first == name) return true;
    return false;
  }
  int64_t number() const { return std::stoll(text); }
  Numbers numbers() const {
    Numbers found;
    for (const auto& item : items) found.push_back(item.number());
    return found;
  }
};

class JsonReader {
 public:
  explicit JsonReader(const std::string& text) : text_(text) {}

  Json value() {
    skip();
    Json made;
    if (peek() == '{') {
      for (next(); skip(), peek() != '}';) {
        if (peek() == ',') next(), skip();
        std::string name = string();
        skip();
        next();  // the colon
        made.fields.emplace_back(name, value());
      }
      next();
    } else if (peek() == '[') {
      for (next(); skip(), peek() != ']';) {
        if (peek() == ',') next();
        made.items.push_back(value());
      }
      next();
    } else if (peek() == '"') {
      made.text = string();
    } else {
      while (at_ < text_.size() && std::string(",]} \n\t\r").find(text_[at_]) == std::string::npos) made.text += next();
    }
    return made;
  }

 private:
  char peek() const {
    if (at_ >= text_.size()) fail("the file's header ends early");
    return text_[at_];
  }
  char next() {
    char c = peek();
    ++at_;
    return c;
  }
  void skip() {
    while (at_ < text_.size() && std::string(" \n\t\r").find(text_[at_]) != std::string::npos) ++at_;
  }
  std::string string() {
    std::string made;
    next();
    for (char c = next(); c != '"'; c = next()) {
      if (c != '\\') {
        made += c;
        continue;
      }
      c = next();
      if (c == 'u') {
        unsigned code = std::stoul(text_.substr(at_, 4), nullptr, 16);
        at_ += 4;
        if (code < 0x80) {
          made += char(code);
        } else if (code < 0x800) {
          made += char(0xC0 | code >> 6);
          made += char(0x80 | (code & 63));
        } else {  // halves of pairs stay apart: nothing that is read here has them
          made += char(0xE0 | code >> 12);
          made += char(0x80 | (code >> 6 & 63));
          made += char(0x80 | (code & 63));
        }
      } else {
        made += c == 'n' ? '\n' : c == 't' ? '\t' : c == 'r' ? '\r' : c == 'b' ? '\b' : c == 'f' ? '\f' : c;
      }
    }
    return made;
  }

  const std::string& text_;
  size_t at_ = 0;
};

// ---- the file -------------------------------------------------------------------------------------------------------

class File {
 public:
  explicit File(const std::string& path) {
    int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat status;
    if (descriptor < 0 || fstat(descriptor, &status)) fail("can't read " + path);
    size_ = status.st_size;
    void* mapped = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE, descriptor, 0);
    close(descriptor);
    if (mapped == MAP_FAILED) fail("can't map " + path);
    memory_ = std::shared_ptr<char>(static_cast<char*>(mapped), [size = size_](char* m) { munmap(m, size); });
    uint64_t length = 0;
    if (size_ >= 8) std::memcpy(&length, memory_.get(), 8);
    if (size_ < 8 || length > size_ - 8) fail(path + " is no file of safetensors");
    std::string text(memory_.get() + 8, length);
    header_ = JsonReader(text).value();
    start_ = 8 + length;
    if (!header_.has("__metadata__") || !header_.at("__metadata__").has("intarsia"))
      fail(path + " was not written by intarsia.export");
    head = JsonReader(metadata("intarsia")).value();
    if (head.at("format").text != "3") fail(path + " has format " + head.at("format").text + ", this is a reader of 3");
  }

  const std::string& metadata(const std::string& name) const { return header_.at("__metadata__").at(name).text; }

  std::pair<char*, size_t> bytes(const std::string& name) const {
    Numbers ends = header_.at(name).at("data_offsets").numbers();
    if (ends.size() != 2 || ends[0] < 0 || ends[1] < ends[0] || start_ + ends[1] > size_) fail(name + " is cut off");
    return {memory_.get() + start_ + ends[0], size_t(ends[1] - ends[0])};
  }

  at::Tensor tensor(const std::string& name) const {
    static const std::map<std::string, at::ScalarType> types{
        {"BOOL", at::kBool}, {"U8", at::kByte}, {"I8", at::kChar}, {"I16", at::kShort}, {"I32", at::kInt},
        {"I64", at::kLong}, {"F16", at::kHalf}, {"BF16", at::kBFloat16}, {"F32", at::kFloat}, {"F64", at::kDouble},
        {"C64", at::kComplexFloat}};
    const Json& entry = header_.at(name);
    auto type = types.find(entry.at("dtype").text);
    if (type == types.end()) fail(name + " has elements of type " + entry.at("dtype").text);
    auto keep = memory_;
    at::Tensor whole = at::from_blob(bytes(name).first, entry.at("shape").numbers(), [keep](void*) {},
                                     at::TensorOptions().dtype(type->second));
    if (!head.at("layouts").has(name)) return whole;
    const Json& layout = head.at("layouts").at(name);
    Numbers shape = layout.items[0].numbers(), strides = layout.items[1].numbers();
    if (layout.items[2].text != "null") return whole.as_strided(shape, strides);
    return at::empty_strided(shape, strides, whole.options()).copy_(whole);
  }

  Json head;

 private:
  Json header_;
  std::shared_ptr<char> memory_;
  size_t size_ = 0, start_ = 0;
};

// ---- words ----------------------------------------------------------------------------------------------------------

inline Words split(const std::string& text, char at) {
  Words found;
  std::string word;
  std::istringstream stream(text);
  while (std::getline(stream, word, at)) found.push_back(word);
  return found;
}

inline std::string unquoted(const std::string& text) {
  std::string made;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%') {
      made += char(std::stoi(text.substr(i + 1, 2), nullptr, 16));
      i += 2;
    } else {
      made += text[i];
    }
  }
  return made;
}

// What one call knows: tensors by slot, sizes by symbol, the arena.
struct Frame {
  std::vector<at::Tensor> slots;
  std::map<std::string, int64_t> symbols;
  at::Tensor arena;
};

inline int64_t floor_div(int64_t a, int64_t b) {
  if (b == 0) fail("a size is divided by 0");
  return a / b - ((a % b != 0) && ((a < 0) != (b < 0)));
}

inline int64_t size_of(const std::string& postfix, const Frame& frame) {
  Numbers stack;
  for (const std::string& word : split(postfix, ',')) {
    if (std::isdigit(word[0]) || (word[0] == '-' && word.size() > 1)) {
      stack.push_back(std::stoll(word));
      continue;
    }
    auto symbol = frame.symbols.find(word);
    if (symbol != frame.symbols.end()) {
      stack.push_back(symbol->second);
      continue;
    }
    if (stack.size() < 2) fail("a size is written as " + postfix);
    int64_t b = stack.back();
    stack.pop_back();
    int64_t& a = stack.back();
    if (word == "+") a += b;
    else if (word == "-") a -= b;
    else if (word == "*") a *= b;
    else if (word == "/") a = floor_div(a, b);
    else if (word == "%") a -= floor_div(a, b) * b;
    else if (word == "max") a = std::max(a, b);
    else if (word == "min") a = std::min(a, b);
    else if (word == "and") a = a && b;
    else if (word == "or") a = a || b;
    else if (word == "<") a = a < b;
    else if (word == "<=") a = a <= b;
    else if (word == "==") a = a == b;
    else if (word == "!=") a = a != b;
    else if (word == ">") a = a > b;
    else if (word == ">=") a = a >= b;
    else fail("a size is written as " + postfix);
  }
  if (stack.size() != 1) fail("a size is written as " + postfix);
  return stack[0];
}

inline Numbers sizes_of(const std::string& text, const Frame& frame) {
  Numbers found;
  if (text != "-")
    for (const std::string& word : split(text, ';')) found.push_back(size_of(word, frame));
  return found;
}

// ---- values ---------------------------------------------------------------------------------------------------------

inline at::Tensor tensor_of(const Words& parts, const Frame& frame) {
  if (parts[0] == "t") return frame.slots[std::stoi(parts[1])];
  if (parts[0] == "v") {
    const at::Tensor& base = frame.slots[std::stoi(parts[1])];
    return at::as_strided(base, sizes_of(parts[2], frame), sizes_of(parts[3], frame),
                          base.storage_offset() + size_of(parts[4], frame));
  }
  at::Tensor typed = frame.arena.view(at::ScalarType(std::stoi(parts[2])));
  return at::as_strided(typed, sizes_of(parts[3], frame), sizes_of(parts[4], frame),
                        std::stoll(parts[1]) + size_of(parts[5], frame));
}

inline c10::IValue scalar_of(const Words& parts, const Frame& frame) {
  switch (parts[0][0]) {
    case 'n': return c10::IValue();
    case 'b': return parts[1] == "1";
    case 'i': return size_of(parts[1], frame);
    case 'f': return std::stod(parts[1]);
    case 's': return unquoted(parts.size() > 1 ? parts[1] : "");
    case 'd': return at::Device(parts[1]);
  }
  return tensor_of(parts, frame);
}

// Returns a value as an operator takes it: numbers as floats or scalars, and lists of what the type says.
inline c10::IValue typed(const c10::IValue& value, const c10::TypePtr& type) {
  if (auto optional = type->cast<c10::OptionalType>())
    return value.isNone() ? value : typed(value, optional->getElementType());
  if (auto list = type->cast<c10::ListType>()) {
    if (!value.isList()) return value;
    auto element = list->getElementType();
    c10::impl::GenericList made(element);
    for (const c10::IValue& item : value.toListRef()) made.push_back(typed(item, element));
    return made;
  }
  if (type->kind() == c10::TypeKind::FloatType && value.isInt()) return double(value.toInt());
  return value;
}

class WordReader {
 public:
  WordReader(const Words& words, size_t at) : words_(words), at_(at) {}
  const std::string& next() { return words_.at(at_++); }
  bool done() const { return at_ >= words_.size(); }
  c10::IValue value(const Frame& frame) {
    const std::string& word = next();
    if (word != "[") return scalar_of(split(word, ':'), frame);
    c10::impl::GenericList made(c10::AnyType::get());
    while (words_.at(at_) != "]") made.push_back(value(frame));
    ++at_;
    return made;
  }

 private:
  const Words& words_;
  size_t at_;
};

inline at::Tensor copy_of(const at::Tensor& value) {
  for (int64_t stride : value.strides())
    if (stride == 0) return value.clone(at::MemoryFormat::Contiguous);
  return at::empty_strided(value.sizes(), value.strides(), value.options()).copy_(value);
}

inline std::string shown(c10::IntArrayRef sizes) {
  std::ostringstream text;
  text << sizes;
  return text.str();
}

// ---- one variant ----------------------------------------------------------------------------------------------------

class Variant {
 public:
  Variant(const File& file, int number, std::map<std::string, at::Tensor>& weights) : weights_(weights) {
    std::string own = "intarsia/" + std::to_string(number) + "/";
    const std::string& plan = file.metadata("plan " + std::to_string(number));
    if (plan.empty()) fail("it has no plan: " + file.head.at("variants").items[number].at("no_plan").text);
    for (const std::string& line : split(plan, '\n')) lines_.push_back(split(line, ' '));
    if (lines_[0] != Words{"host", "1"}) fail("the plan has another format");
    load(file.bytes(own + "library"));
    size_t slots = 0;
    for (const Words& w : lines_) {
      if (w[0] == "argument") names_.push_back(unquoted(w[1]));
      if (w[0] == "constant") constants_[std::stoi(w[1])] = file.tensor(own + "constant/" + unquoted(w[2]));
      if (w[0] == "input" && w[2] == "weight") weight(file, unquoted(w[3]));
      if (w[0] == "leaf" && w[1] == "weight") weight(file, unquoted(w[2]));
      if (w[0] == "input" || w[0] == "constant" || w[0] == "own" || w[0] == "layout")
        slots = std::max(slots, size_t(std::stoi(w[1])) + 1);
      if (w[0] == "input") inputs_.push_back(std::stoi(w[1]));
    }
    slots_ = slots;
  }

  // Returns why it isn't for these arguments; "" where it is. Reads the symbols.
  std::string refuses(const std::vector<at::Tensor>& arguments, Frame& frame) const {
    if (arguments.size() != names_.size())
      return std::to_string(names_.size()) + " tensors are needed, not " + std::to_string(arguments.size());
    for (const Words& w : lines_) {
      if (w[0] == "tensor") {
        const at::Tensor& x = arguments[std::stoi(w[1])];
        const std::string& name = names_[std::stoi(w[1])];
        if (x.is_conj() || x.is_neg() || !x.device().is_cpu()) return name + " is no plain tensor on the CPU";
        if (x.scalar_type() != at::ScalarType(std::stoi(w[2]))) return name + " has another element type";
        if (!fits(w[3], x.sizes())) return name + " has the sizes " + shown(x.sizes()) + ", and " + w[3] + " is needed";
        if (!fits(w[4], x.strides())) return name + " has the strides " + shown(x.strides()) + ", not " + w[4];
      } else if (w[0] == "symbol") {
        const at::Tensor& x = arguments[std::stoi(w[2])];
        frame.symbols[w[1]] = w[3] == "size" ? x.size(std::stoi(w[4]))
                              : w[3] == "stride" ? x.stride(std::stoi(w[4])) : x.storage_offset();
      } else if (w[0] == "check" && !size_of(w[1], frame)) {
        return unquoted(w[2]) + " doesn't hold";
      } else if (w[0] == "apart") {
        for (size_t i = 2; i < w.size(); ++i)
          if (arguments[std::stoi(w[1])].is_alias_of(arguments[std::stoi(w[i])]))
            return names_[std::stoi(w[1])] + " is written and shares memory with " + names_[std::stoi(w[i])];
      }
    }
    return "";
  }

  std::vector<c10::IValue> run(const std::vector<at::Tensor>& arguments, Frame& frame) const {
    frame.slots.resize(slots_);
    std::vector<c10::IValue> results, outputs, leaves;
    {
      // gradients and casts were settled when it was exported
      at::AutoDispatchBelowADInplaceOrView below;
      c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
      for (const Words& w : lines_) step(w, arguments, frame, results);
    }
    at::NoGradGuard no_grad;
    for (const Words& w : lines_) {
      if (w[0] == "write") frame.slots[inputs_[std::stoi(w[1])]].copy_(results[std::stoi(w[2])].toTensor());
      if (w[0] == "output") outputs.push_back(output(w, frame, results));
      if (w[0] == "true")
        for (int i = 0; i < std::stoi(w[1]); ++i)
          if (!outputs.at(i).toTensor().item<bool>()) fail("the program goes another way for these values");
      if (w[0] == "leaf") leaves.push_back(leaf(w, arguments, frame, outputs));
    }
    return leaves;
  }

 private:
  void weight(const File& file, const std::string& name) {
    if (!weights_.count(name)) weights_[name] = file.tensor(name);
  }

  void load(std::pair<char*, size_t> image) {
    int descriptor = memfd_create("intarsia", MFD_CLOEXEC);
    if (descriptor < 0 || write(descriptor, image.first, image.second) != ssize_t(image.second))
      fail("can't write machine code to memory");
    void* handle = dlopen(("/proc/self/fd/" + std::to_string(descriptor)).c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle) fail(std::string("the machine code can't be loaded: ") + dlerror());
    // the loader takes a path that it knows for a library that it has: the number stays taken as long as this is loaded
    library_ = std::shared_ptr<void>(handle, [descriptor](void* loaded) {
      dlclose(loaded);
      close(descriptor);
    });
  }

  static bool fits(const std::string& wanted, c10::IntArrayRef found) {
    Words words = wanted == "-" ? Words{} : split(wanted, ';');
    if (words.size() != found.size()) return false;
    for (size_t i = 0; i < words.size(); ++i)
      if (words[i] != "?" && std::stoll(words[i]) != found[i]) return false;
    return true;
  }

  void step(const Words& w, const std::vector<at::Tensor>& arguments, Frame& f, std::vector<c10::IValue>& results) const {
    const std::string& what = w[0];
    if (what == "input") {
      at::Tensor& slot = f.slots[std::stoi(w[1])];
      if (w[2] == "argument") slot = arguments[std::stoi(w[3])];
      if (w[2] == "weight") slot = weights_.at(unquoted(w[3]));
    } else if (what == "constant") {
      f.slots[std::stoi(w[1])] = constants_.at(std::stoi(w[1]));
    } else if (what == "arena") {
      f.arena = at::empty({size_of(w[1], f)}, at::kByte);
    } else if (what == "own") {
      f.slots[std::stoi(w[1])] =
          at::empty_strided(sizes_of(w[3], f), sizes_of(w[4], f), at::TensorOptions(at::ScalarType(std::stoi(w[2]))));
    } else if (what == "launch") {
      launch(w, f);
    } else if (what == "call") {
      call(w, f);
    } else if (what == "layout") {
      layout(w, f);
    } else if (what == "require") {
      if (!size_of(w[1], f)) fail(unquoted(w[2]));
    } else if (what == "drop") {
      for (size_t i = 1; i < w.size(); ++i) f.slots[std::stoi(w[i])] = at::Tensor();
    } else if (what == "result") {
      c10::IValue value = WordReader(w, 2).value(f);
      results.push_back(w[1] == "shared" ? c10::IValue(copy_of(value.toTensor())) : value);
    }
  }

  void launch(const Words& w, const Frame& f) const {
    std::vector<uint64_t> a;
    for (size_t i = 2; i < w.size(); ++i) {
      std::string rest = w[i].substr(2);
      a.push_back(w[i][0] == 'p'   ? reinterpret_cast<uint64_t>(f.slots[std::stoi(rest)].data_ptr())
                  : w[i][0] == 'o' ? reinterpret_cast<uint64_t>(f.arena.data_ptr()) + std::stoll(rest)
                                   : uint64_t(size_of(rest, f)));
    }
    void* entry = dlsym(library_.get(), w[1].c_str());
    if (!entry) fail("the machine code has no entry " + w[1]);
    invoke(entry, a);
  }

  // Arguments are 64-bit words, all in general registers or on the stack: as many as the largest kernels have.
  static void invoke(void* entry, const std::vector<uint64_t>& a) {
    if (a.size() > 64) fail("a kernel takes more than 64 arguments");
    invoke_n(entry, a, std::make_index_sequence<64>());
  }
  template <size_t... I>
  static void invoke_n(void* entry, const std::vector<uint64_t>& a, std::index_sequence<I...>) {
    // a C function ignores arguments that it doesn't take: the caller makes room for them, and takes it back
    using Entry = void (*)(decltype(uint64_t(I))...);
    reinterpret_cast<Entry>(entry)((I < a.size() ? a[I] : 0)...);
  }

  void call(const Words& w, Frame& f) const {
    auto op = c10::Dispatcher::singleton().findSchemaOrThrow(w[1].c_str(), w[2] == "-" ? "" : w[2].c_str());
    const auto& formal = op.schema().arguments();
    WordReader words(w, 3);
    std::vector<c10::IValue> stack;
    int n = std::stoi(words.next());
    for (int i = 0; i < n; ++i) stack.push_back(typed(words.value(f), formal.at(i).type()));
    std::unordered_map<std::string, c10::IValue> named;
    for (int m = std::stoi(words.next()); m > 0; --m) {
      std::string name = words.next();
      named.emplace(name, words.value(f));
    }
    for (size_t i = stack.size(); i < formal.size(); ++i) {
      auto found = named.find(formal[i].name());
      if (found == named.end() && !formal[i].default_value()) fail(w[1] + " lacks the argument " + formal[i].name());
      stack.push_back(found != named.end() ? typed(found->second, formal[i].type()) : *formal[i].default_value());
    }
    op.callBoxed(stack);
    std::vector<c10::IValue> given;
    if (words.next() == "list") given = stack.at(0).toListRef().vec();
    else given = stack;
    for (size_t i = 0; !words.done(); ++i) {
      const std::string& slot = words.next();
      if (slot != "_") f.slots[std::stoi(slot)] = given.at(i).toTensor();
    }
  }

  static void layout(const Words& w, Frame& f) {
    at::Tensor& x = f.slots[std::stoi(w[1])];
    Numbers shape = sizes_of(w[3], f), strides = sizes_of(w[4], f);
    if (w[5] == "1") x = copy_of(x);
    if (x.scalar_type() != at::ScalarType(std::stoi(w[2])) || x.sizes() != c10::IntArrayRef(shape))
      fail("an operator gave the sizes " + shown(x.sizes()) + ", where " + shown(shape) + " was predicted");
    if (x.strides() == c10::IntArrayRef(strides)) return;
    bool same = x.numel() == 0;
    if (!same) {
      same = true;
      for (size_t d = 0; d < shape.size(); ++d) same = same && (shape[d] == 1 || x.stride(d) == strides[d]);
    }
    x = same ? at::as_strided(x, shape, strides) : at::empty_strided(shape, strides, x.options()).copy_(x);
  }

  c10::IValue output(const Words& w, const Frame& f, const std::vector<c10::IValue>& results) const {
    if (w[1] == "fresh") return results.at(std::stoi(w[2]));
    if (w[1] == "input") return f.slots[inputs_.at(std::stoi(w[2]))];
    if (w[1] == "value") return WordReader(w, 2).value(f);
    at::Tensor base =
        w[1] == "view_of_input" ? f.slots[inputs_.at(std::stoi(w[2]))] : results.at(std::stoi(w[2])).toTensor();
    return at::as_strided(base, sizes_of(w[3], f), sizes_of(w[4], f), base.storage_offset() + size_of(w[5], f));
  }

  c10::IValue leaf(const Words& w, const std::vector<at::Tensor>& arguments, const Frame& f,
                   const std::vector<c10::IValue>& outputs) const {
    if (w[1] == "output") return outputs.at(std::stoi(w[2]));
    if (w[1] == "argument") return arguments.at(std::stoi(w[2]));
    if (w[1] == "weight") return weights_.at(unquoted(w[2]));
    return WordReader(w, 2).value(f);
  }

  std::map<std::string, at::Tensor>& weights_;
  std::map<int, at::Tensor> constants_;
  std::vector<Words> lines_;
  Words names_;
  std::vector<int> inputs_;
  std::shared_ptr<void> library_;
  size_t slots_ = 0;
};

// ---- the program ----------------------------------------------------------------------------------------------------

class Program {
 public:
  explicit Program(const std::string& path) {
    File file(path);
    for (size_t n = 0; n < file.head.at("variants").items.size(); ++n) variants_.emplace_back(file, int(n), weights);
  }
  Program(const Program&) = delete;

  // Runs it, without gradients. Throws std::runtime_error where it is for other arguments.
  std::vector<c10::IValue> operator()(const std::vector<at::Tensor>& arguments) const {
    std::string why;
    for (const Variant& variant : variants_) {
      Frame frame;
      std::string refusal = variant.refuses(arguments, frame);
      if (refusal.empty()) return variant.run(arguments, frame);
      if (why.empty()) why = refusal;
    }
    fail("the program was exported for other arguments: " + why);
  }

  std::map<std::string, at::Tensor> weights;  // by their names; buffers that it writes among them

 private:
  std::vector<Variant> variants_;
};

}  // namespace intarsia
