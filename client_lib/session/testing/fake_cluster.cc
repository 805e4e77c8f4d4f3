#include "client_lib/session/testing/fake_cluster.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/patience.h"
#include "common/transport/in_process.h"
#include "gtest/gtest.h"

namespace djinn {

class FakeCoordinatorLink : public CoordinatorLink {
 public:
  explicit FakeCoordinatorLink(std::shared_ptr<FakeCoordinator> coordinator)
      : coordinator_(std::move(coordinator)) {}

  absl::StatusOr<Opened> Open(const std::string&, absl::Duration,
                              CoordinatorEvents* events) override {
    MutexLock lock(&coordinator_->mu_);
    coordinator_->events_ = events;
    return Opened{"session", "tenant"};
  }

  absl::StatusOr<v1::LeaseGranted> RequestLease(v1::LeaseRequest request,
                                                absl::Duration) override {
    auto granted = Grant(request);
    std::string ends;
    {
      MutexLock lock(&coordinator_->mu_);
      ends.swap(coordinator_->next_lease_ends_);
    }
    if (!ends.empty()) {
      coordinator_->EndLease(granted->lease().lease_id(), ends);
    }
    return granted;
  }

  void ReturnLease(const std::string& lease_id, bool unreachable) override {
    MutexLock lock(&coordinator_->mu_);
    coordinator_->returned_.push_back(
        absl::StrCat(lease_id, unreachable ? " unreachable" : ""));
  }

  void SendGraph(v1::Graph graph, v1::GraphNotes notes,
                 std::optional<v1::StageRequest> stages) override {
    MutexLock lock(&coordinator_->mu_);
    if (stages.has_value()) {
      coordinator_->stage_requests_.push_back(
          {*std::move(stages), std::move(graph)});
      coordinator_->changed_.SignalAll();
      return;
    }
    coordinator_->notes_.push_back(std::move(notes));
    coordinator_->graphs_.push_back(std::move(graph));
  }

  void ReportMigration(uint32_t, v1::MigrationOutcome outcome) override {
    MutexLock lock(&coordinator_->mu_);
    coordinator_->outcomes_.push_back(std::move(outcome));
    coordinator_->changed_.SignalAll();
  }

  void Report(v1::SessionRequest report) override {
    MutexLock lock(&coordinator_->mu_);
    coordinator_->reports_.push_back(std::move(report));
    coordinator_->changed_.SignalAll();
  }

  void CancelRequests() override {
    MutexLock lock(&coordinator_->mu_);
    coordinator_->cancelled_ = true;
    coordinator_->changed_.SignalAll();
  }

  absl::Status Close(absl::Duration) override {
    MutexLock lock(&coordinator_->mu_);
    coordinator_->closed_ = true;
    coordinator_->events_ = nullptr;
    return absl::OkStatus();
  }

 private:
  absl::StatusOr<v1::LeaseGranted> Grant(const v1::LeaseRequest& request) {
    MutexLock lock(&coordinator_->mu_);
    coordinator_->requests_.push_back(request);
    coordinator_->changed_.SignalAll();
    if (!coordinator_->refusal_.ok()) return coordinator_->refusal_;
    const size_t returned = coordinator_->returned_.size();
    if (returned > 0 && !coordinator_->refusal_after_return_.ok()) {
      return coordinator_->refusal_after_return_;
    }
    if (request.member() >= coordinator_->members_) {
      return MakeError(absl::StatusCode::kResourceExhausted, "NO_CAPACITY",
                       "no worker has room");
    }
    if (request.contents_size() > 0 && !coordinator_->contents_refusal_.ok()) {
      return coordinator_->contents_refusal_;
    }
    while (coordinator_->hold_ && !coordinator_->cancelled_) {
      coordinator_->changed_.Wait(&coordinator_->mu_);
    }
    if (coordinator_->cancelled_) return absl::CancelledError("cancelled");
    v1::LeaseGranted granted;
    granted.set_virtual_device(request.virtual_device());
    granted.set_member(request.member());
    granted.set_placement_reason("the only one");
    v1::Lease* const lease = granted.mutable_lease();
    lease->set_lease_id(request.member() == 0
                            ? absl::StrCat("lease-", request.virtual_device())
                            : absl::StrCat("lease-", request.virtual_device(),
                                           ".", request.member()));
    lease->set_token("token");
    lease->set_session_epoch(1);
    lease->set_worker_id(
        absl::StrCat("w", request.virtual_device() + request.member()));
    lease->set_worker_incarnation(
        FakeWorker::kIncarnation +
        coordinator_->restarts_[request.virtual_device() + request.member()]);
    lease->set_worker_address("in-process");
    if (coordinator_->elsewhere_ && returned > 0) {
      lease->set_worker_id(absl::StrCat(
          "w", std::min<size_t>(returned, FakeCluster::kWorkers - 1)));
      lease->set_lease_id(absl::StrCat("lease-0.away-", returned));
    }
    return granted;
  }

  const std::shared_ptr<FakeCoordinator> coordinator_;
};

namespace {

class GroupingStream : public ClientStream {
 public:
  GroupingStream(std::unique_ptr<ClientStream> stream,
                 std::shared_ptr<MessageGroups> groups)
      : stream_(std::move(stream)), groups_(std::move(groups)) {}

  absl::string_view transport() const override { return stream_->transport(); }
  void Start(ClientStreamReceiver* receiver) override {
    stream_->Start(receiver);
  }
  absl::Status Send(
      std::shared_ptr<const v1::ControlRequest> message) override {
    return stream_->Send(std::move(message));
  }
  absl::Status SendAll(
      absl::Span<const std::shared_ptr<const v1::ControlRequest>> messages)
      override {
    groups_->Add(messages.size());
    return stream_->SendAll(messages);
  }
  bool SendsTogether() const override { return true; }
  bool LeadsBulk() const override { return false; }
  void Reclaim() override { groups_->AddReclaim(); }
  absl::Status SendBulk(uint64_t transfer_id, uint64_t offset,
                        SharedBytes payload) override {
    return stream_->SendBulk(transfer_id, offset, std::move(payload));
  }
  void Close(absl::Status status) override {
    stream_->Close(std::move(status));
  }

 private:
  const std::unique_ptr<ClientStream> stream_;
  const std::shared_ptr<MessageGroups> groups_;
};

// Acts as if a round trip took less time than a copy.
class NearStream : public GroupingStream {
 public:
  using GroupingStream::GroupingStream;
  bool SendsTogether() const override { return false; }
  bool is_near() const override { return true; }
};

class HookedStream : public GroupingStream {
 public:
  HookedStream(std::unique_ptr<ClientStream> stream,
               std::shared_ptr<MessageGroups> groups,
               std::shared_ptr<StreamHooks> hooks)
      : GroupingStream(std::move(stream), std::move(groups)),
        hooks_(std::move(hooks)) {}
  absl::Status SendAll(
      absl::Span<const std::shared_ptr<const v1::ControlRequest>> messages)
      override {
    hooks_->Sends(*this);
    return GroupingStream::SendAll(messages);
  }
  bool SendsTogether() const override { return false; }
  void Close(absl::Status status) override {
    if (status.ok()) hooks_->Closes();
    GroupingStream::Close(std::move(status));
  }

 private:
  const std::shared_ptr<StreamHooks> hooks_;
};

class InProcessConnector : public WorkerConnector {
 public:
  InProcessConnector(
      std::shared_ptr<std::vector<std::unique_ptr<FakeWorker>>> workers,
      std::shared_ptr<MessageGroups> groups, std::shared_ptr<StreamHooks> hooks,
      std::shared_ptr<std::atomic<int>> dials_to_refuse)
      : workers_(std::move(workers)),
        groups_(std::move(groups)),
        hooks_(std::move(hooks)),
        dials_to_refuse_(std::move(dials_to_refuse)) {}

  absl::StatusOr<std::unique_ptr<ClientStream>> Connect(
      const v1::Lease& lease, const std::string&) override {
    if (dials_to_refuse_->load() > 0) {
      --*dials_to_refuse_;
      return absl::UnavailableError("connect: Connection refused");
    }
    InProcessPair pair = MakeInProcessPair();
    workers_->at(lease.worker_id()[1] - '0')->Serve(std::move(pair.worker));
    if (groups_->near()) {
      return std::make_unique<NearStream>(std::move(pair.client), groups_);
    }
    if (hooks_->begun()) {
      return std::make_unique<HookedStream>(std::move(pair.client), groups_,
                                            hooks_);
    }
    if (!groups_->begun()) return std::move(pair.client);
    return std::make_unique<GroupingStream>(std::move(pair.client), groups_);
  }

 private:
  const std::shared_ptr<std::vector<std::unique_ptr<FakeWorker>>> workers_;
  const std::shared_ptr<MessageGroups> groups_;
  const std::shared_ptr<StreamHooks> hooks_;
  const std::shared_ptr<std::atomic<int>> dials_to_refuse_;
};

}  // namespace

std::vector<v1::LeaseRequest> FakeCoordinator::lease_requests() const {
  MutexLock lock(&mu_);
  return requests_;
}

std::vector<std::string> FakeCoordinator::returned_leases() const {
  MutexLock lock(&mu_);
  return returned_;
}

std::vector<v1::Graph> FakeCoordinator::graphs() const {
  MutexLock lock(&mu_);
  return graphs_;
}

std::vector<v1::GraphNotes> FakeCoordinator::notes() const {
  MutexLock lock(&mu_);
  return notes_;
}

bool FakeCoordinator::closed() const {
  MutexLock lock(&mu_);
  return closed_;
}

void FakeCoordinator::RefuseLeases(absl::Status refusal) {
  MutexLock lock(&mu_);
  refusal_ = std::move(refusal);
}

void FakeCoordinator::RefuseContents(absl::Status refusal) {
  MutexLock lock(&mu_);
  contents_refusal_ = std::move(refusal);
}

void FakeCoordinator::LetSpan(int members) {
  MutexLock lock(&mu_);
  members_ = static_cast<uint32_t>(members);
}

void FakeCoordinator::PlaceElsewhere() {
  MutexLock lock(&mu_);
  elsewhere_ = true;
}

void FakeCoordinator::RefuseAfterReturn(absl::Status refusal) {
  MutexLock lock(&mu_);
  refusal_after_return_ = std::move(refusal);
}

void FakeCoordinator::HoldLeases() {
  MutexLock lock(&mu_);
  hold_ = true;
}

void FakeCoordinator::NoteRestart(int worker) {
  MutexLock lock(&mu_);
  ++restarts_[static_cast<uint32_t>(worker)];
}

void FakeCoordinator::EndNextLease(std::string reason) {
  MutexLock lock(&mu_);
  next_lease_ends_ = std::move(reason);
}

void FakeCoordinator::EndLease(const std::string& lease_id,
                               const std::string& reason) {
  CoordinatorEvents* events;
  {
    MutexLock lock(&mu_);
    events = events_;
  }
  events->OnLeaseEnded(lease_id, reason);
}

void FakeCoordinator::AskToMigrate(const std::string& from_lease_id, int worker,
                                   int number) {
  v1::MigrationRequest request;
  request.set_from_lease_id(from_lease_id);
  request.mutable_to()->set_placement_reason("told to");
  v1::Lease* const lease = request.mutable_to()->mutable_lease();
  lease->set_lease_id(absl::StrCat("lease-", number));
  lease->set_token("token");
  lease->set_session_epoch(2);
  lease->set_worker_id(absl::StrCat("w", worker));
  lease->set_worker_incarnation(FakeWorker::kIncarnation);
  lease->set_worker_address("in-process");
  CoordinatorEvents* events;
  {
    MutexLock lock(&mu_);
    events = events_;
  }
  events->OnMigrationRequested(request);
}

v1::MigrationOutcome FakeCoordinator::WaitOutcome() {
  MutexLock lock(&mu_);
  for (Patience patience; outcomes_.empty();) patience.Wait(&changed_, &mu_);
  v1::MigrationOutcome outcome = std::move(outcomes_.front());
  outcomes_.pop_front();
  return outcome;
}

v1::MigrationOutcome FakeCoordinator::Migrate(const std::string& from_lease_id,
                                              int worker, int number) {
  AskToMigrate(from_lease_id, worker, number);
  return WaitOutcome();
}

FakeCoordinator::StagesAsked FakeCoordinator::WaitStagesAsked() {
  MutexLock lock(&mu_);
  for (Patience patience; stage_requests_.empty();)
    patience.Wait(&changed_, &mu_);
  StagesAsked asked = std::move(stage_requests_.front());
  stage_requests_.pop_front();
  return asked;
}

v1::SessionRequest FakeCoordinator::WaitReport() {
  MutexLock lock(&mu_);
  for (Patience patience; reports_.empty();) patience.Wait(&changed_, &mu_);
  v1::SessionRequest report = std::move(reports_.front());
  reports_.pop_front();
  return report;
}

v1::LineageAnswer FakeCoordinator::AskLineage(uint64_t storage) {
  CoordinatorEvents* events;
  {
    MutexLock lock(&mu_);
    events = events_;
  }
  v1::LineageQuestion question;
  question.set_number(1);
  question.set_storage(storage);
  events->OnLineageAsked(question);
  for (;;) {
    const v1::SessionRequest report = WaitReport();
    if (report.has_lineage()) return report.lineage();
  }
}

size_t FakeCoordinator::stages_asked() const {
  MutexLock lock(&mu_);
  return stage_requests_.size();
}

void FakeCoordinator::AnswerStages(const v1::StageAnswer& answer) {
  CoordinatorEvents* events;
  {
    MutexLock lock(&mu_);
    events = events_;
  }
  events->OnStages(answer);
}

void FakeCoordinator::AttachAgain() {
  CoordinatorEvents* events;
  {
    MutexLock lock(&mu_);
    events = events_;
  }
  events->OnAttachedAgain();
}

void FakeCoordinator::WaitForLeaseRequest() {
  MutexLock lock(&mu_);
  for (Patience patience; requests_.empty();) patience.Wait(&changed_, &mu_);
}

FakeCluster::FakeCluster(v1::SessionLimits limits)
    : coordinator_(std::make_shared<FakeCoordinator>()),
      workers_(std::make_shared<std::vector<std::unique_ptr<FakeWorker>>>()) {
  for (int i = 0; i < kWorkers; ++i) {
    workers_->push_back(
        std::make_unique<FakeWorker>(limits, absl::StrCat("w", i)));
  }
  worker(0).Set(&FakeScript::other, &worker(1));
  worker(1).Set(&FakeScript::other, &worker(0));
}

FakeCluster::~FakeCluster() {
  for (int device = 0; device < kWorkers; ++device) {
    if (device == excused_) continue;
    for (const std::string& violation : worker(device).seen().violations) {
      ADD_FAILURE() << violation;
    }
  }
}

FakeCluster::Opened FakeCluster::OpenDevice(SessionOptions options) {
  auto session = Open(std::move(options));
  auto device = *session->Device(0);
  return {std::move(session), std::move(device)};
}

std::unique_ptr<Session> FakeCluster::Open(SessionOptions options) {
  return *OpenSession(std::move(options),
                      std::make_unique<FakeCoordinatorLink>(coordinator_),
                      std::make_unique<InProcessConnector>(
                          workers_, groups_, hooks_, dials_to_refuse_));
}

void FakeCluster::SendTogether() { groups_->Begin(); }

void FakeCluster::BeNear() { groups_->BeNear(); }

StreamHooks& FakeCluster::HookStreams() {
  hooks_->Begin();
  return *hooks_;
}

void StreamHooks::BeforeSend(std::function<void(ClientStream&)> hook) {
  MutexLock lock(&mu_);
  send_ = std::move(hook);
}

void StreamHooks::BeforeCleanClose(std::function<void()> hook) {
  MutexLock lock(&mu_);
  close_ = std::move(hook);
}

void StreamHooks::Sends(ClientStream& stream) {
  std::function<void(ClientStream&)> hook;
  {
    MutexLock lock(&mu_);
    hook.swap(send_);
  }
  if (hook != nullptr) hook(stream);
}

void StreamHooks::Closes() {
  std::function<void()> hook;
  {
    MutexLock lock(&mu_);
    hook.swap(close_);
  }
  if (hook != nullptr) hook();
}

void MessageGroups::Begin() {
  MutexLock lock(&mu_);
  begun_ = true;
}

bool MessageGroups::begun() const {
  MutexLock lock(&mu_);
  return begun_;
}

void MessageGroups::Add(size_t messages) {
  MutexLock lock(&mu_);
  sizes_.push_back(messages);
}

void MessageGroups::AddReclaim() {
  MutexLock lock(&mu_);
  ++reclaims_;
}

int MessageGroups::reclaims() const {
  MutexLock lock(&mu_);
  return reclaims_;
}

std::vector<size_t> MessageGroups::sizes() const {
  MutexLock lock(&mu_);
  return sizes_;
}

}  // namespace djinn
