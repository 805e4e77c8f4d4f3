// A session on fakes: a coordinator that grants what the test says and fake
// workers at the other end of in-process streams, one per virtual device.
#ifndef CLIENT_LIB_SESSION_TESTING_FAKE_CLUSTER_H_
#define CLIENT_LIB_SESSION_TESTING_FAKE_CLUSTER_H_

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "client_lib/session/remote_session.h"
#include "client_lib/session/testing/fake_worker.h"
#include "common/base/mutex.h"

namespace djinn {

// What the coordinator was told, and how it answers. Thread-safe.
class FakeCoordinator {
 public:
  std::vector<v1::LeaseRequest> lease_requests() const;
  // Each followed by " unreachable" if the client said so.
  std::vector<std::string> returned_leases() const;
  std::vector<v1::Graph> graphs() const;
  std::vector<v1::GraphNotes> notes() const;  // one per graph
  bool closed() const;

  void RefuseLeases(absl::Status refusal);
  // Likewise, but only requests that name contents.
  void RefuseContents(absl::Status refusal);
  // A virtual device may have so many members; 1 at first. Each has the worker
  // of the device of that number, and "lease-DEVICE.MEMBER".
  void LetSpan(int members);
  // Lease requests wait until they are cancelled.
  void HoldLeases();
  // As if the coordinator had said so.
  void EndLease(const std::string& lease_id, const std::string& reason);
  // Asks device 0 to go from the worker that it has to `worker`, under the
  // lease "lease-NUMBER"; waits for what became of it.
  v1::MigrationOutcome Migrate(const std::string& from_lease_id, int worker,
                               int number);
  // The same without waiting.
  void AskToMigrate(const std::string& from_lease_id, int worker, int number);
  v1::MigrationOutcome WaitOutcome();
  // A graph that came with the question how to cut it; it is not among
  // graphs().
  struct StagesAsked {
    v1::StageRequest request;
    v1::Graph graph;
  };
  StagesAsked WaitStagesAsked();
  // Those not waited for.
  size_t stages_asked() const;
  void AnswerStages(const v1::StageAnswer& answer);
  // As if the link had attached to another coordinator.
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
  uint32_t members_ ABSL_GUARDED_BY(mu_) = 1;
  bool hold_ ABSL_GUARDED_BY(mu_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  std::deque<StagesAsked> stage_requests_ ABSL_GUARDED_BY(mu_);
  std::deque<v1::MigrationOutcome> outcomes_ ABSL_GUARDED_BY(mu_);
  CoordinatorEvents* events_ ABSL_GUARDED_BY(mu_) = nullptr;
};

// Of streams after SendTogether(). Thread-safe.
class MessageGroups {
 public:
  void Begin();
  bool begun() const;
  void BeNear() { near_ = true; }
  bool near() const { return near_; }
  void Add(size_t messages);
  std::vector<size_t> sizes() const;
  void AddRecall();
  int recalls() const;

 private:
  mutable Mutex mu_;
  bool begun_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<size_t> sizes_ ABSL_GUARDED_BY(mu_);
  int recalls_ ABSL_GUARDED_BY(mu_) = 0;
  std::atomic<bool> near_{false};
};

// Leases are called "lease-N" for device N and lead to the worker of that
// device.
class FakeCluster {
 public:
  explicit FakeCluster(v1::SessionLimits limits = FakeWorker::DefaultLimits());

  // Opens a session; once.
  std::unique_ptr<Session> Open(SessionOptions options = {});

  // Streams opened from now on prefer several messages at once, and bulk passes
  // by those who attend, as with gRPC.
  void SendTogether();
  // Workers of streams opened from now on are near.
  void BeNear();
  // What was sent at once since then: how many messages each time.
  std::vector<size_t> groups() const { return groups_->sizes(); }
  // How often one was told to receive by itself since then.
  int recalls() const { return groups_->recalls(); }

  FakeCoordinator& coordinator() { return *coordinator_; }
  // Exists before the lease does. The first kWorkers devices have one.
  FakeWorker& worker(int device = 0) { return *workers_->at(device); }

 private:
  static constexpr int kWorkers = 3;

  std::shared_ptr<FakeCoordinator> coordinator_;
  std::shared_ptr<std::vector<std::unique_ptr<FakeWorker>>> workers_;
  const std::shared_ptr<MessageGroups> groups_ =
      std::make_shared<MessageGroups>();
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_TESTING_FAKE_CLUSTER_H_
