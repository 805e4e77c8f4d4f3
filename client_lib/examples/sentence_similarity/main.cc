// Embeds sentences with all-MiniLM-L6-v2 and shows which are alike.
//
//   sentence_similarity --model_dir=FOLDER "A first sentence" "A second one"
//   sentence_similarity --model_dir=FOLDER --file=sentences.txt
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
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
#include "client_lib/examples/sentence_similarity/similarity_table.h"

ABSL_FLAG(std::string, model_dir, "",
          "folder of the model: what sentence-transformers saves");
ABSL_FLAG(std::string, file, "",
          "text file with a sentence per line, added to those of the command "
          "line; empty lines are skipped");
ABSL_FLAG(std::string, device, "cpu", "where the model runs");
ABSL_FLAG(uint32_t, max_tokens, 0,
          "longest sentence, in tokens; what is beyond is cut off. 0 for the "
          "model's own limit");
ABSL_FLAG(int32_t, warm_runs, 0,
          "encode so many times more and print the first and the median time");

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

absl::StatusOr<at::Device> ParseDevice(const std::string& name) {
  try {
    return at::Device(name);
  } catch (const c10::Error& error) {
    return absl::InvalidArgumentError(
        absl::StrCat("--device: ", error.what_without_backtrace()));
  }
}

absl::Status Run(std::vector<std::string> sentences) {
  if (const std::string path = absl::GetFlag(FLAGS_file); !path.empty()) {
    absl::StatusOr<std::vector<std::string>> lines = ReadLines(path);
    if (!lines.ok()) return lines.status();
    sentences.insert(sentences.end(), lines->begin(), lines->end());
  } else if (sentences.empty()) {
    sentences.assign(std::begin(kDefaultSentences),
                     std::end(kDefaultSentences));
  }
  const absl::StatusOr<at::Device> device =
      ParseDevice(absl::GetFlag(FLAGS_device));
  if (!device.ok()) return device.status();
  if (absl::GetFlag(FLAGS_model_dir).empty()) {
    return absl::InvalidArgumentError("--model_dir is missing");
  }

  const auto service =
      EncoderService::Load({.model_folder = absl::GetFlag(FLAGS_model_dir),
                            .device = *device,
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
  if (warm_runs > 0) {
    std::cout << "\nOn " << (*service)->device().str() << ": first run "
              << latency->first << ", then " << latency->warm_median
              << " (median of " << warm_runs << ")\n";
  }
  return absl::OkStatus();
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
  std::cerr << "sentence_similarity: " << status << "\n";
  return 1;
}
