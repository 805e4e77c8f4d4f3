// Embeds sentences with all-MiniLM-L6-v2 and shows which are alike.
//
//   sentence_similarity --model_dir=FOLDER "A first sentence" "A second one"
//   sentence_similarity --model_dir=FOLDER --file=sentences.txt
//   sentence_similarity --model_dir=FOLDER --coordinator=ADDRESS
//   --token_file=FILE sentence_similarity --model_dir=FOLDER --demo
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/types/span.h"
#include "c10/util/Exception.h"
#include "client_lib/examples/sentence_similarity/encoder_service.h"
#include "client_lib/examples/sentence_similarity/latency.h"
#include "client_lib/examples/sentence_similarity/remote_demo.h"
#include "client_lib/examples/sentence_similarity/similarity_table.h"
#include "djinn/djinn.h"

ABSL_FLAG(std::string, model_dir, "",
          "folder of the model: what sentence-transformers saves");
ABSL_FLAG(std::string, file, "",
          "text file with a sentence per line, added to those of the command "
          "line; empty lines are skipped");
ABSL_FLAG(std::string, device, "",
          "where the model runs: cpu, or, if there is a coordinator, "
          "remote_accelerator:0");
ABSL_FLAG(std::string, coordinator, "",
          "address of a Djinn cluster to run on; DJINN_COORDINATOR if empty");
ABSL_FLAG(std::string, token_file, "",
          "file with a token for that cluster; DJINN_TOKEN_FILE if empty");
ABSL_FLAG(bool, demo, false,
          "start a cluster, run there and here, and compare");
ABSL_FLAG(uint32_t, max_tokens, 0,
          "longest sentence, in tokens; what is beyond is cut off. 0 for the "
          "model's own limit");
ABSL_FLAG(int32_t, warm_runs, 0,
          "encode so many times more and print the first and the median time");

// Between the processes of a demo.
ABSL_FLAG(bool, second_process, false, "be the second process of a demo");
ABSL_FLAG(std::string, first_worker, "", "where the first process ran");
ABSL_FLAG(uint64_t, first_bytes_up, 0, "what the first process sent");

namespace djinn::examples {
namespace {

// Shown when no sentences are given: three pairs on three subjects.
const char* const kDefaultSentences[] = {
    "The new movie is awesome",    "The cat sits outside",
    "A man is playing guitar",     "The new movie is so great",
    "The dog plays in the garden", "A woman watches TV",
};

absl::StatusOr<std::vector<std::string>> ReadLines(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  std::string line;
  while (std::getline(file, line)) {
    absl::StripAsciiWhitespace(&line);
    if (!line.empty()) lines.push_back(line);
  }
  if (!file.eof()) {
    return absl::NotFoundError(absl::StrCat("cannot read ", path));
  }
  return lines;
}

// The device of the flags, "cpu" without any.
absl::StatusOr<at::Device> ChooseDevice() {
  const std::string name = absl::GetFlag(FLAGS_device);
  try {
    if (!name.empty()) return at::Device(name);
    return absl::GetFlag(FLAGS_coordinator).empty() ? at::Device(at::kCPU)
                                                    : Device();
  } catch (const c10::Error& error) {
    return absl::InvalidArgumentError(
        absl::StrCat("--device: ", error.what_without_backtrace()));
  }
}

absl::StatusOr<std::vector<std::string>> ChooseSentences(
    std::vector<std::string> sentences) {
  if (const std::string path = absl::GetFlag(FLAGS_file); !path.empty()) {
    absl::StatusOr<std::vector<std::string>> lines = ReadLines(path);
    if (!lines.ok()) return lines.status();
    sentences.insert(sentences.end(), lines->begin(), lines->end());
  } else if (sentences.empty()) {
    sentences.assign(std::begin(kDefaultSentences),
                     std::end(kDefaultSentences));
  }
  return sentences;
}

// Encodes on the device and prints the table.
absl::Status ShowSimilarities(const std::vector<std::string>& sentences,
                              at::Device device) {
  const auto service =
      EncoderService::Load({.model_folder = absl::GetFlag(FLAGS_model_dir),
                            .device = device,
                            .max_tokens = absl::GetFlag(FLAGS_max_tokens)});
  if (!service.ok()) return service.status();
  absl::StatusOr<at::Tensor> embeddings;
  const auto encode = [&] {
    embeddings = (*service)->Encode(sentences);
    return embeddings.status();
  };
  const int warm_runs = absl::GetFlag(FLAGS_warm_runs);
  absl::StatusOr<Latency> latency;
  if (warm_runs > 0) {
    latency = MeasureLatency(encode, warm_runs, absl::Now);
    if (!latency.ok()) return latency.status();
  } else if (absl::Status status = encode(); !status.ok()) {
    return status;
  }
  const absl::Span<const float> values(
      embeddings->const_data_ptr<float>(),
      static_cast<size_t>(embeddings->numel()));
  std::cout << FormatSimilarityTable(
      sentences, CosineSimilarities(values, (*service)->width()));
  if (device.is_privateuseone()) {
    const auto where = WhereIs(std::max<int>(device.index(), 0));
    if (!where.ok()) return where.status();
    std::cout << "\n"
              << device.str() << " is " << where->worker_id << ": "
              << where->reason << "\n";
  }
  if (warm_runs > 0) {
    std::cout << "\nOn " << device.str() << ": first run " << latency->first
              << ", then " << latency->warm_median << " (median of "
              << warm_runs << ")\n";
  }
  return absl::OkStatus();
}

absl::Status Run(std::vector<std::string> arguments) {
  const auto sentences = ChooseSentences(std::move(arguments));
  if (!sentences.ok()) return sentences.status();
  const auto device = ChooseDevice();
  if (!device.ok()) return device.status();
  if (absl::GetFlag(FLAGS_model_dir).empty()) {
    return absl::InvalidArgumentError("--model_dir is missing");
  }

  DemoOptions demo = {.model_folder = absl::GetFlag(FLAGS_model_dir),
                      .sentences = *sentences,
                      .max_tokens = absl::GetFlag(FLAGS_max_tokens)};
  if (const int runs = absl::GetFlag(FLAGS_warm_runs); runs > 0) {
    demo.warm_runs = runs;
  }
  if (absl::GetFlag(FLAGS_demo)) return RunDemo(demo, std::cout);
  const std::string coordinator = absl::GetFlag(FLAGS_coordinator);
  const std::string token_file = absl::GetFlag(FLAGS_token_file);
  if (absl::GetFlag(FLAGS_second_process)) {
    return RunSecondProcess(demo,
                            {.coordinator = coordinator,
                             .token_file = token_file,
                             .worker_id = absl::GetFlag(FLAGS_first_worker),
                             .bytes_up = absl::GetFlag(FLAGS_first_bytes_up)},
                            std::cout);
  }

  if (!coordinator.empty()) {
    absl::Status status =
        Connect({.coordinator = coordinator, .token_file = token_file});
    if (!status.ok()) return status;
  }
  absl::Status status = ShowSimilarities(*sentences, *device);
  status.Update(Close());
  return status;
}

}  // namespace
}  // namespace djinn::examples

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage(
      "shows which sentences are alike\n"
      "usage: sentence_similarity --model_dir=FOLDER [FLAG...] [SENTENCE...]");
  const std::vector<char*> arguments = absl::ParseCommandLine(argc, argv);
  const absl::Status status = djinn::examples::Run(
      std::vector<std::string>(arguments.begin() + 1, arguments.end()));
  if (status.ok()) return 0;
  std::cerr << "sentence_similarity: "
            << status.ToString(absl::StatusToStringMode::kWithNoExtraData)
            << "\n";
  return 1;
}
