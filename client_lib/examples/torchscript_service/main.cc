// Serves a TorchScript module, as Python's torch.jit.save() wrote it.
//
//   torchscript_service --model=model.pt [--device=remote_accelerator:0]
//
// Each line of standard input is a float32 tensor: its sizes, a colon and its
// elements. For each of these lines, a line of standard output holds the
// module's result in the same form, or "error:" and the reason.
//
//   2 3: 0.1 0.2 0.3 0.4 0.5 0.6
//
// The session comes from DJINN_COORDINATOR and DJINN_TOKEN_FILE; with
// --device=cpu there is no session. All other code here is ordinary PyTorch
// code.
#include <torch/script.h>

#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

ABSL_FLAG(std::string, model, "", "file of the module");
ABSL_FLAG(std::string, device, "remote_accelerator:0", "where it runs");

namespace {

template <typename Number, typename Parse>
std::vector<Number> Numbers(absl::string_view text, Parse parse) {
  std::vector<Number> numbers;
  for (const absl::string_view word :
       absl::StrSplit(text, absl::ByAnyChar(" \t\r"), absl::SkipEmpty())) {
    TORCH_CHECK(parse(word, &numbers.emplace_back()), "not a number: ", word);
  }
  return numbers;
}

torch::Tensor Parse(absl::string_view line) {
  const std::vector<absl::string_view> parts = absl::StrSplit(line, ':');
  TORCH_CHECK(parts.size() == 2, "not SIZES: ELEMENTS");
  const auto sizes =
      Numbers<int64_t>(parts[0], [](absl::string_view word, int64_t* size) {
        return absl::SimpleAtoi(word, size);
      });
  const auto elements = Numbers<float>(parts[1], &absl::SimpleAtof);
  return torch::tensor(elements).view(sizes);
}

std::string Format(const torch::Tensor& tensor) {
  const torch::Tensor here = tensor.to(torch::kCPU, torch::kFloat).contiguous();
  std::string line = absl::StrJoin(here.sizes(), " ");
  line += ":";
  for (int64_t i = 0; i < here.numel(); ++i) {
    absl::StrAppendFormat(&line, " %.9g", here.const_data_ptr<float>()[i]);
  }
  return line;
}

std::string Answer(torch::jit::Module* module, torch::Device device,
                   absl::string_view request) {
  try {
    return Format(module->forward({Parse(request).to(device)}).toTensor());
  } catch (const c10::Error& error) {
    return absl::StrCat("error: ", error.what_without_backtrace());
  } catch (const std::exception& error) {
    return absl::StrCat("error: ", error.what());
  }
}

int Serve() {
  const torch::InferenceMode inference;
  const torch::Device device(absl::GetFlag(FLAGS_device));
  torch::jit::Module module;
  try {
    module = torch::jit::load(absl::GetFlag(FLAGS_model), device);
  } catch (const c10::Error& error) {
    std::cerr << "cannot load the model: " << error.what_without_backtrace()
              << "\n";
    return 1;
  }
  module.eval();
  std::string request;
  while (std::getline(std::cin, request)) {
    // One line each, also of an error's text.
    std::cout << absl::StrReplaceAll(Answer(&module, device, request),
                                     {{"\n", " "}})
              << std::endl;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return Serve();
}
