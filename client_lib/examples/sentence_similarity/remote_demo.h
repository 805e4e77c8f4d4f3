// `./djinn demo`: the encoder on two remote workers, beside itself on the CPU.
//
// Starts a coordinator and two workers as processes of their own, encodes on
// "remote_accelerator:0", compares with the CPU, then shows that a second
// process finds the model where the first one put it.
#ifndef CLIENT_LIB_EXAMPLES_SENTENCE_SIMILARITY_REMOTE_DEMO_H_
#define CLIENT_LIB_EXAMPLES_SENTENCE_SIMILARITY_REMOTE_DEMO_H_

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace djinn::examples {

struct DemoOptions {
  std::string model_folder;
  std::vector<std::string> sentences;
  // As in EncoderOptions.
  size_t max_tokens = 0;
  // Runs after the first, each on other sentences of the same lengths. At least
  // 1.
  int warm_runs = 20;
};

// Reports to `out` as it goes. FailedPrecondition names what did not come out
// as promised: results other than the CPU's, warm runs or a second process that
// upload the model again, a process left behind. Other errors are those of the
// encoder and of the cluster.
absl::Status RunDemo(const DemoOptions& options, std::ostream& out);

// What the first process of a demo tells the second, on its command line.
struct FirstProcess {
  std::string coordinator;
  std::string token_file;
  // Where the model is.
  std::string worker_id;
  // Bytes it took to bring the model there and to run it once.
  uint64_t bytes_up = 0;
};

// The second process' part, on a cluster where the first has run.
absl::Status RunSecondProcess(const DemoOptions& options,
                              const FirstProcess& first, std::ostream& out);

// The words of `sentence` in another order for each `round`, as long as there
// are orders left; 0 keeps the sentence. Has as many tokens for every round.
std::string Reordered(absl::string_view sentence, int round);

}  // namespace djinn::examples

#endif  // CLIENT_LIB_EXAMPLES_SENTENCE_SIMILARITY_REMOTE_DEMO_H_
