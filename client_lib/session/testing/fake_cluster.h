// Runs a session on fakes: a coordinator that grants what the test specifies,
// and fake workers at the other end of in-process streams, one for each virtual
// device.
#ifndef CLIENT_LIB_SESSION_TESTING_FAKE_CLUSTER_H_
#define CLIENT_LIB_SESSION_TESTING_FAKE_CLUSTER_H_

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "client_lib/session/remote_session.h"
#include "client_lib/session/testing/fake_worker.h"
#include "common/base/mutex.h"
#include "common/transport/stream.h"

namespace djinn {

// Keeps what the coordinator received, and determines its answers. Thread-safe.
class FakeCoordinator {
 public:
  std::vector<v1::LeaseRequest> lease_requests() const;
  // Returns the ids of returned leases. An id is followed by " unreachable" if
  // the client reported that.
  std::vector<std::string> returned_leases() const;
  std::vector<v1::Graph> graphs() const;
  std::vector<v1::GraphNotes> notes() const;  // one per graph
  bool closed() const;

  void RefuseLeases(absl::Status refusal);
  // Refuses only lease requests that name contents.
  void RefuseContents(absl::Status refusal);
  // Allows `members` replicas for each virtual device; initially 1. Replica I
  // of a device has the worker of device I, and the lease "lease-DEVICE.I".
  void LetSpan(int members);
  // Makes each later lease of device 0 lead to the worker after the one whose
  // lease the client returned as unreachable, under the lease "lease-0.away-N"
  // for the worker N, and at last for the last one.
  void PlaceElsewhere();
  // Refuses the lease requests that follow the first return.
  void RefuseAfterReturn(absl::Status refusal);
  // Makes lease requests wait until they are cancelled.
  void HoldLeases();
  // Ends the lease as the coordinator would.
  void EndLease(const std::string& lease_id, const std::string& reason);
  // Ends the next lease before the client has the grant.
  void EndNextLease(std::string reason);
  // Asks device 0 to migrate from its present worker to `worker`, under the
  // lease "lease-NUMBER". Waits for the outcome.
  v1::MigrationOutcome Migrate(const std::string& from_lease_id, int worker,
                               int number);
  // Asks without waiting.
  void AskToMigrate(const std::string& from_lease_id, int worker, int number);
  v1::MigrationOutcome WaitOutcome();
  // A graph that came with a question how to cut it. It is not among graphs().
  struct StagesAsked {
    v1::StageRequest request;
    v1::Graph graph;
  };
  StagesAsked WaitStagesAsked();
  // Returns the number of questions that were not waited for.
  size_t stages_asked() const;
  void AnswerStages(const v1::StageAnswer& answer);
  // Waits for the next report of the client, and returns it.
  v1::SessionRequest WaitReport();
  // Asks the client for its lineage, and returns the answer. Drops the reports
  // that came before.
  v1::LineageAnswer AskLineage(uint64_t storage = 0);
  // Notes that the worker restarted with another incarnation, for leases from
  // now on.
  void NoteRestart(int worker = 0);
  // Imitates a link that attached to another coordinator.
  void AttachAgain();
  void WaitForLeaseRequest();

 private:
  friend class FakeCoordinatorLink;

  mutable Mutex mu_;
  CondVar changed_;
  std::vector<v1::LeaseRequest> requests_ ABSL_GUARDED_BY(mu_);
  std::vector<std::string> returned_ ABSL_GUARDED_BY(mu_);
  std::vector<v1::Graph> graphs_ ABSL_GUARDED_BY(mu_);
  std::vector<v1::GraphNotes> notes_ ABSL_GUARDED_BY(mu_);
  absl::Status refusal_ ABSL_GUARDED_BY(mu_);
  absl::Status contents_refusal_ ABSL_GUARDED_BY(mu_);
  absl::Status refusal_after_return_ ABSL_GUARDED_BY(mu_);
  uint32_t members_ ABSL_GUARDED_BY(mu_) = 1;
  bool elsewhere_ ABSL_GUARDED_BY(mu_) = false;
  // Why the next lease ends at once; empty if it does not.
  std::string next_lease_ends_ ABSL_GUARDED_BY(mu_);
  std::map<uint32_t, uint64_t> restarts_ ABSL_GUARDED_BY(mu_);  // by worker
  bool hold_ ABSL_GUARDED_BY(mu_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  std::deque<StagesAsked> stage_requests_ ABSL_GUARDED_BY(mu_);
  std::deque<v1::MigrationOutcome> outcomes_ ABSL_GUARDED_BY(mu_);
  std::deque<v1::SessionRequest> reports_ ABSL_GUARDED_BY(mu_);
  CoordinatorEvents* events_ ABSL_GUARDED_BY(mu_) = nullptr;
};

// Counts the messages of streams after SendTogether(). Thread-safe.
class MessageGroups {
 public:
  void Begin();
  bool begun() const;
  void BeNear() { near_ = true; }
  bool near() const { return near_; }
  void Add(size_t messages);
  std::vector<size_t> sizes() const;
  void AddReclaim();
  int reclaims() const;

 private:
  mutable Mutex mu_;
  bool begun_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<size_t> sizes_ ABSL_GUARDED_BY(mu_);
  int reclaims_ ABSL_GUARDED_BY(mu_) = 0;
  std::atomic<bool> near_{false};
};

// Runs functions of a test just before a stream does something. Thread-safe.
class StreamHooks {
 public:
  void Begin() { begun_ = true; }
  bool begun() const { return begun_; }
  // Each function runs once, on the thread that calls the stream.
  void BeforeSend(std::function<void(ClientStream&)> hook);
  void BeforeCleanClose(std::function<void()> hook);

  // The streams call these.
  void Sends(ClientStream& stream);
  void Closes();

 private:
  std::atomic<bool> begun_{false};
  Mutex mu_;
  std::function<void(ClientStream&)> send_ ABSL_GUARDED_BY(mu_);
  std::function<void()> close_ ABSL_GUARDED_BY(mu_);
};

// Device N has the lease "lease-N", which leads to the worker of that device.
class FakeCluster {
 public:
  static constexpr int kWorkers = 3;

  explicit FakeCluster(v1::SessionLimits limits = FakeWorker::DefaultLimits());
  // Fails the test if a worker saw a violation, unless it is excused.
  ~FakeCluster();
  void Excuse(int device) { excused_ = device; }

  // Opens a session; called once.
  std::unique_ptr<Session> Open(SessionOptions options = {});
  struct Opened {
    std::unique_ptr<Session> session;
    std::shared_ptr<VirtualDevice> device;  // 0
  };
  Opened OpenDevice(SessionOptions options = {});

  // Makes streams that are opened from now on prefer to send several messages
  // at once, and receive Bulk without a leader, as gRPC's do.
  void SendTogether();
  // Makes workers of streams opened from now on near.
  void BeNear();
  // Makes streams opened from now on run the hooks.
  StreamHooks& HookStreams();
  // Refuses the next `count` attempts to connect, as if no worker listened.
  void RefuseDials(int count) { *dials_to_refuse_ = count; }
  int dials_to_refuse() const { return *dials_to_refuse_; }
  // Returns the number of messages in each group sent since then.
  std::vector<size_t> groups() const { return groups_->sizes(); }
  // Returns how often Reclaim() was called on a stream since then.
  int reclaims() const { return groups_->reclaims(); }

  FakeCoordinator& coordinator() { return *coordinator_; }
  // Returns the device's worker, which exists before the lease does. Only the
  // first kWorkers devices have a worker.
  FakeWorker& worker(int device = 0) { return *workers_->at(device); }

 private:
  int excused_ = kWorkers;
  std::shared_ptr<FakeCoordinator> coordinator_;
  std::shared_ptr<std::vector<std::unique_ptr<FakeWorker>>> workers_;
  const std::shared_ptr<MessageGroups> groups_ =
      std::make_shared<MessageGroups>();
  const std::shared_ptr<StreamHooks> hooks_ = std::make_shared<StreamHooks>();
  const std::shared_ptr<std::atomic<int>> dials_to_refuse_ =
      std::make_shared<std::atomic<int>>(0);
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_TESTING_FAKE_CLUSTER_H_
