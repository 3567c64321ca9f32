// Runs an artefact without Python: run FILE OUT SHAPE..., such as `run model.safetensors out.bin 8x16 i4`.
//
// Each SHAPE is a tensor among the arguments, filled with 0, 1/8, 2/8, ..., or with i in front with integers 0, 1, 2, ...
// What comes out is printed, and the elements of its tensors are written to OUT.
#include <intarsia/export.h>

#include <fstream>
#include <iostream>

static at::Tensor argument(std::string text) {
  bool whole = text[0] == 'i';
  intarsia::Numbers shape;
  for (const std::string& size : intarsia::split(whole ? text.substr(1) : text, 'x')) shape.push_back(std::stoll(size));
  at::Tensor count = at::arange(c10::multiply_integers(shape), at::kLong).reshape(shape);
  return whole ? count : count.to(at::kFloat) / 8;
}

int main(int argc, char** argv) try {
  intarsia::Program program(argv[1]);
  std::vector<at::Tensor> arguments;
  for (int i = 3; i < argc; ++i) arguments.push_back(argument(argv[i]));
  std::ofstream out(argv[2], std::ios::binary);
  for (const c10::IValue& result : program(arguments)) {
    if (!result.isTensor()) {
      std::cout << result << "\n";
      continue;
    }
    at::Tensor x = result.toTensor().contiguous();
    std::cout << x.dtype() << " " << x.sizes() << "\n";
    out.write(static_cast<const char*>(x.data_ptr()), x.nbytes());
  }
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
