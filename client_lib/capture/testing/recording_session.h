// A session for tests of capture that computes nothing. It keeps every call as
// a node, answers reads with zeros, and reports unknown results as vectors of
// one element.
#ifndef CLIENT_LIB_CAPTURE_TESTING_RECORDING_SESSION_H_
#define CLIENT_LIB_CAPTURE_TESTING_RECORDING_SESSION_H_

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client_lib/session/model/call.h"
#include "client_lib/session/model/operator_table.h"
#include "client_lib/session/recording/session.h"
#include "common/base/mutex.h"

namespace djinn {

struct RecordedCall {
  std::string name;
  srg::Node node;  // slots are storage ids
  uint32_t lane = 0;
  uint32_t site = 0;
};

class NoGraphs : public DeviceGraphs {
 public:
  absl::Status Start(uint32_t) override {
    return absl::UnimplementedError("a recorder executes nothing");
  }
  absl::StatusOr<std::shared_ptr<const CapturedGraph>> Finish(
      uint32_t, absl::Span<RemoteStorage* const>,
      absl::Span<RemoteStorage* const>, size_t) override {
    return absl::UnimplementedError("a recorder executes nothing");
  }
  absl::Status Refusal(uint32_t) override { return absl::OkStatus(); }
  void Drop(uint32_t) override {}
  absl::StatusOr<std::vector<StoragePtr>> Replay(
      uint32_t, const std::shared_ptr<const CapturedGraph>&,
      absl::Span<RemoteStorage* const>,
      std::shared_ptr<const CapturedNumbers>) override {
    return absl::UnimplementedError("a recorder executes nothing");
  }
};

class RecordingDevice : public VirtualDevice {
 public:
  static constexpr uint64_t kMemoryBytes = uint64_t{1} << 30;

  explicit RecordingDevice(int index) : index_(index) {}

  int index() const override { return index_; }
  StoragePtr NewStorage(uint64_t size_bytes) override {
    MutexLock lock(&mu_);
    return StoragePtr(
        new RemoteStorage(next_storage_++, shared_from_this(), size_bytes));
  }
  void MarkDead(RemoteStorage*) override {
    MutexLock lock(&mu_);
    ++dead_;
  }
  absl::Status Record(uint32_t lane, Call* call) override {
    std::vector<uint32_t> slots;
    std::vector<uint8_t> accesses;
    for (const Touch& touch : call->touches()) {
      slots.push_back(static_cast<uint32_t>(touch.storage->id()));
      accesses.push_back(touch.access);
    }
    HoleCounters counters;
    MutexLock lock(&mu_);
    if (!failure_.ok()) return failure_;
    calls_.push_back(
        {OperatorTable::Global().Get(call->operator_id()).FullName(),
         DecodeCall(call->bytes(), slots, accesses, &counters), lane,
         call->site()});
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<ResultMetadata>> RecordAndWait(
      uint32_t lane, Call* call) override {
    const absl::Status recorded = Record(lane, call);
    if (!recorded.ok()) return recorded;
    std::vector<ResultMetadata> metadata(call->unknown_results());
    for (ResultMetadata& result : metadata) {
      result.view.data_type = srg::DataType::kInt64;
      result.view.sizes = {1};
      result.view.strides = {1};
      result.storage_bytes = 8;
    }
    return metadata;
  }
  absl::Status Upload(uint32_t, RemoteStorage* storage,
                      SharedBytes source) override {
    MutexLock lock(&mu_);
    uploads_.push_back(source.bytes.size());
    return source.bytes.size() == storage->size_bytes()
               ? absl::OkStatus()
               : absl::InternalError("upload of another size");
  }
  absl::Status CopyFrom(uint32_t, RemoteStorage* storage,
                        RemoteStorage* source) override {
    MutexLock lock(&mu_);
    copies_.push_back(source->size_bytes());
    return source->size_bytes() == storage->size_bytes()
               ? absl::OkStatus()
               : absl::InternalError("copy of another size");
  }
  absl::Status Seed(uint32_t, RemoteStorage*, uint64_t seed) override {
    std::function<void()> hook;
    {
      MutexLock lock(&mu_);
      seeds_.push_back(seed);
      hook = std::exchange(on_seed_, nullptr);
    }
    if (hook) hook();
    return absl::OkStatus();
  }
  absl::Status Resize(uint32_t, RemoteStorage*, uint64_t size_bytes) override {
    MutexLock lock(&mu_);
    resizes_.push_back(size_bytes);
    return absl::OkStatus();
  }
  absl::Status Read(uint32_t, RemoteStorage*, const srg::TensorView&,
                    void* destination, uint64_t bytes) override {
    std::memset(destination, 0, bytes);
    MutexLock lock(&mu_);
    reads_.push_back(bytes);
    return failure_;
  }
  absl::StatusOr<std::unique_ptr<PendingRead>> StartRead(uint32_t,
                                                         RemoteStorage*,
                                                         const srg::TensorView&,
                                                         void*,
                                                         uint64_t) override {
    return absl::UnimplementedError("a recorder has no values");
  }
  uint64_t VersionOf(const RemoteStorage&) override { return 0; }
  HostValuePtr FindHostValue(const StorageAt&) override { return nullptr; }
  void KeepHostValue(const StorageAt&, absl::Span<const StorageAt>,
                     HostValuePtr, bool) override {}
  DeviceGraphs& graphs() override { return graphs_; }
  absl::Status RegisterModel(uint32_t, uint64_t, absl::string_view,
                             std::vector<StoragePtr>) override {
    return absl::UnimplementedError("a recorder executes nothing");
  }
  void ForgetModel(uint64_t) override {}
  absl::Status CatchUp() override { return absl::OkStatus(); }
  absl::Status Synchronize() override { return absl::OkStatus(); }
  absl::StatusOr<DevicePlacement> Placement() override {
    DevicePlacement placement{"recorder", "for tests", kMemoryBytes};
    MutexLock lock(&mu_);
    placement.generator_bytes = generator_bytes_;
    return placement;
  }

  // Sets the size of generator states; 16 as if the worker computed on a GPU.
  void SetGeneratorBytes(uint64_t bytes) {
    MutexLock lock(&mu_);
    generator_bytes_ = bytes;
  }

  // Sets a function that the next Seed() calls before it returns.
  void OnNextSeed(std::function<void()> hook) {
    MutexLock lock(&mu_);
    on_seed_ = std::move(hook);
  }

  void Fail(absl::Status status) {
    MutexLock lock(&mu_);
    failure_ = std::move(status);
  }
  std::vector<RecordedCall> TakeCalls() {
    MutexLock lock(&mu_);
    return std::exchange(calls_, {});
  }
  std::vector<std::string> TakeNames() {
    std::vector<std::string> names;
    for (const RecordedCall& call : TakeCalls()) names.push_back(call.name);
    return names;
  }
  std::vector<uint64_t> uploads() const { return Copy(uploads_); }
  std::vector<uint64_t> reads() const { return Copy(reads_); }
  std::vector<uint64_t> copies() const { return Copy(copies_); }
  std::vector<uint64_t> seeds() const { return Copy(seeds_); }
  std::vector<uint64_t> resizes() const { return Copy(resizes_); }
  int dead() const {
    MutexLock lock(&mu_);
    return dead_;
  }

 private:
  std::vector<uint64_t> Copy(const std::vector<uint64_t>& values) const {
    MutexLock lock(&mu_);
    return values;
  }

  const int index_;
  NoGraphs graphs_;
  mutable Mutex mu_;
  absl::Status failure_ ABSL_GUARDED_BY(mu_);
  uint64_t generator_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t next_storage_ ABSL_GUARDED_BY(mu_) = 1;
  int dead_ ABSL_GUARDED_BY(mu_) = 0;
  std::function<void()> on_seed_ ABSL_GUARDED_BY(mu_);
  std::vector<RecordedCall> calls_ ABSL_GUARDED_BY(mu_);
  std::vector<uint64_t> uploads_, reads_, copies_, seeds_, resizes_;
};

class RecordingSession : public Session {
 public:
  absl::StatusOr<std::shared_ptr<VirtualDevice>> Device(int index) override {
    MutexLock lock(&mu_);
    auto& device = devices_[index];
    if (device == nullptr) device = std::make_shared<RecordingDevice>(index);
    return std::shared_ptr<VirtualDevice>(device);
  }
  std::shared_ptr<RecordingDevice> Recorder(int index) {
    (void)Device(index);
    MutexLock lock(&mu_);
    return devices_[index];
  }
  const SessionOptions& options() const override { return options_; }
  // Call this before other threads use devices.
  void BeStrict(std::optional<std::string> message) {
    options_.strict_devices = std::move(message);
  }
  std::string session_id() const override { return "recording"; }
  std::string tenant() const override { return "test"; }
  Statistics statistics() const override { return {}; }
  std::vector<absl::Status> RootErrors() const override { return {}; }
  absl::Status FinishProfile() override { return absl::OkStatus(); }
  absl::StatusOr<std::unique_ptr<PendingCost>> AskCost(uint32_t) override {
    return absl::UnimplementedError("a recorder measures nothing");
  }
  absl::Status Checkpoint(absl::Duration) override {
    return absl::UnimplementedError("a recorder keeps no values");
  }
  absl::Status Close(absl::Duration) override { return absl::OkStatus(); }

 private:
  SessionOptions options_;
  Mutex mu_;
  std::array<std::shared_ptr<RecordingDevice>, 128> devices_
      ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn

#endif  // CLIENT_LIB_CAPTURE_TESTING_RECORDING_SESSION_H_
