// Defines the state of a fake worker: what a test orders, what the test can
// ask for afterwards, and storages, graphs and replies. The worker's lock
// guards all of it.
#ifndef CLIENT_LIB_SESSION_TESTING_FAKE_WORKER_STATE_H_
#define CLIENT_LIB_SESSION_TESTING_FAKE_WORKER_STATE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/srg/graph.h"
#include "common/srg/validate.h"
#include "djinn/v1/execution.pb.h"

namespace djinn {

class FakeWorker;

// What a test orders. FakeWorker::Set() changes a field.
struct FakeScript {
  // Determines the answers to transfers.
  enum class Transfers { kSend, kHeld, kRefuse };
  // Determines the answer to a session that enters.
  enum class Entries { kLet, kRefuse, kIgnore };
  // Says where a stream is cut: before a message or chunk passes, or after.
  enum class Cut { kBeforeIn, kAfterIn, kBeforeOut, kAfterOut };

  bool silent = false;  // sends no Hello
  bool wrong_id = false;
  bool wrong_fingerprints = false;
  bool ignore_cancel = false;
  bool hold_bulk = false;
  absl::Duration bulk_delay;  // of each chunk
  Transfers transfers = Transfers::kSend;
  // Asks for a proof before each answer, and checks it if the bytes come.
  bool ask_for_proofs = false;
  // Room for eager uploads, announced with every response.
  uint64_t content_room = 0;
  // The next run, or fetch from another worker, poisons what it writes, under
  // this error id.
  uint64_t fail_next_run = 0;
  uint64_t fail_next_pull = 0;
  v1::RunMetadata metadata;
  // Sent with each read while it is profiled, and when a report is asked for.
  v1::ReplyTiming timing;
  v1::ProfileReport report;
  // Sent with Hello.
  v1::DeviceSpeed speed;
  std::string numerics;
  // Limit on a registered model.
  uint64_t model_bytes = UINT64_MAX;
  // The worker whose storages a session gets when it enters here.
  FakeWorker* other = nullptr;
  // Number of attempts to leave that are refused, because offers are pending.
  int refuse_to_let = 0;
  Entries entries = Entries::kLet;
  // Number of new streams that break at once.
  int break_streams = 0;
  // Cuts the stream at this thing (message or chunk, from 1, over all streams)
  // that comes in or goes out.
  Cut cut = Cut::kBeforeIn;
  int cut_at = 0;
};

// What the worker has seen so far.
struct FakeSeen {
  std::vector<v1::Ordered> received;  // executed ordered messages
  // Includes everything that repeats leave out.
  std::vector<v1::Run> runs;
  std::vector<std::string> violations;
  // Things that passed.
  int incoming = 0;
  int outgoing = 0;
  // How often the client has resumed, and cancelled.
  int resumes = 0;
  int cancels = 0;
};

struct FakeStorage {
  uint64_t version = 0;
  std::string bytes;
  uint64_t poison = 0;
};

// A graph that the client defined.
struct FakeWorkerGraph {
  srg::Graph graph;
  srg::GraphFacts facts;
  std::string fingerprint;
  struct Remembered {
    std::vector<uint64_t> storages;
    std::vector<uint32_t> final_slots;
    std::vector<double> floats;
  };
  std::vector<Remembered> remembered;  // by place
};

// A numbered response that is not acknowledged yet.
struct FakeReply {
  v1::ControlResponse response;
  uint64_t transfer_id = 0;
  std::shared_ptr<const std::string> value;  // on Bulk
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_TESTING_FAKE_WORKER_STATE_H_
