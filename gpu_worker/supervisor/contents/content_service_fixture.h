// Runs a supervisor's contents for tests. The executors send raw messages, as
// an executor may that its tenant has taken over.
#ifndef GPU_WORKER_SUPERVISOR_CONTENTS_CONTENT_SERVICE_FIXTURE_H_
#define GPU_WORKER_SUPERVISOR_CONTENTS_CONTENT_SERVICE_FIXTURE_H_

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "common/base/mutex.h"
#include "common/base/patience.h"
#include "common/base/proto_duration.h"
#include "common/hash/content_proof.h"
#include "djinn/v1/supervision.pb.h"
#include "gpu_worker/supervisor/contents/content_service.h"
#include "gpu_worker/supervisor/contents/packets.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace fs = std::filesystem;

inline constexpr uint64_t kShare = 1 << 20;
// For three executors: 100 loans each.
inline constexpr size_t kDescriptors = 600;
inline constexpr int kPatienceMilliseconds = 120'000;

// An executor's end of the socket.
class RawExecutor {
 public:
  explicit RawExecutor(Descriptor socket) : socket_(std::move(socket)) {}

  uint64_t Find(const std::string& bytes, bool provable = false) {
    v1::ContentRequest request;
    *request.mutable_find() = NameOf(bytes);
    request.mutable_find()->set_provable(provable);
    return Send(std::move(request));
  }
  void Prove(uint64_t id, const std::string& mac) {
    v1::ContentRequest request;
    request.set_id(id);
    request.set_proof(mac);
    Send(std::move(request));
  }
  uint64_t Offer(const std::string& bytes) {
    v1::ContentRequest request;
    *request.mutable_offer() = NameOf(bytes);
    return Send(std::move(request));
  }
  void SendPieces(uint64_t id, const std::string& bytes) {
    for (size_t at = 0; at < bytes.size(); at += kPieceBytes) {
      v1::ContentRequest request;
      request.set_id(id);
      request.set_piece(bytes.substr(at, kPieceBytes));
      Send(std::move(request));
    }
  }
  void GiveBack(uint64_t loan) {
    v1::ContentRequest request;
    request.set_give_back(loan);
    Send(std::move(request));
  }
  // Sends the request, with the next id if it needs one and has none.
  uint64_t Send(v1::ContentRequest request) {
    if (request.id() == 0) request.set_id(++last_id_);
    EXPECT_TRUE(SendPacket(socket_.get(), request).ok());
    return request.id();
  }
  // Returns the next answer; an empty one at the end of the socket.
  v1::ContentAnswer Next(Descriptor* lent = nullptr) {
    pollfd watched = {socket_.get(), POLLIN, 0};
    EXPECT_EQ(poll(&watched, 1, kPatienceMilliseconds), 1) << "no answer";
    v1::ContentAnswer answer;
    Descriptor descriptor;
    std::string room;
    (void)ReceivePacket(socket_.get(), &answer, &descriptor, &room);
    if (lent != nullptr) *lent = std::move(descriptor);
    return answer;
  }
  // Has the content kept.
  void Keep(const std::string& bytes) {
    const uint64_t id = Offer(bytes);
    const v1::ContentAnswer answer = Next();
    ASSERT_TRUE(answer.send()) << answer.ShortDebugString();
    SendPieces(id, bytes);
    EXPECT_TRUE(Next().kept());
  }
  int socket() const { return socket_.get(); }

  static v1::ContentDescription NameOf(const std::string& bytes) {
    const ContentHash hash = HashContent(bytes.data(), bytes.size());
    v1::ContentDescription name;
    name.set_hash_high(hash.high);
    name.set_hash_low(hash.low);
    name.set_size_bytes(bytes.size());
    return name;
  }

 private:
  const Descriptor socket_;
  uint64_t last_id_ = 0;
};

inline std::string BytesIn(const Descriptor& file, size_t size) {
  std::string bytes(size, '\0');
  const ssize_t got = pread(file.get(), bytes.data(), size, 0);
  bytes.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
  return bytes;
}

// Executor 1 is tenant "a"'s, 2 is "b"'s, 3 is "c"'s, and 4 has no tenant.
class ContentServiceTest : public testing::Test {
 protected:
  ContentServiceTest() {
    fs::remove_all(folder_);
    Restart();
  }
  ~ContentServiceTest() override {
    Stop();
    fs::remove_all(folder_);
  }

  void Stop() {
    serving_.clear();
    executors_.clear();
    service_.reset();
  }
  // Replaces the service as another process would.
  void Restart(bool disk = true, uint64_t kept = 0) {
    Stop();
    ContentService::Options options;
    options.worker_id = "w0";
    options.executor_bytes = kShare;
    options.executors = 3;
    options.kept_bytes = kept;
    options.descriptors = kDescriptors;
    options.burst = burst_;
    options.tenant_of = [](uint64_t executor) {
      return executor == 4 ? "" : std::string(1, "?abc"[executor]);
    };
    options.refuse = [this](uint64_t executor, const absl::Status& why) {
      MutexLock lock(&mu_);
      refused_[executor] = why;
      changed_.SignalAll();
    };
    options.changed = [] {};
    std::unique_ptr<DiskStore> store;
    if (disk) {
      auto opened = DiskStore::Open({.directory = folder_,
                                     .limit_bytes = 64 << 20,
                                     .write_after = absl::ZeroDuration()},
                                    Clock::Real());
      ASSERT_TRUE(opened.ok()) << opened.status();
      store = *std::move(opened);
    }
    service_ = std::make_unique<ContentService>(
        std::move(options), std::move(store), &clock_, RandomSource::Real());
  }
  RawExecutor& executor(uint64_t number) {
    std::unique_ptr<RawExecutor>& executor = executors_[number];
    if (executor == nullptr) {
      int ends[2];
      EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
      fcntl(ends[0], F_SETFL, O_NONBLOCK);
      serving_[number] = service_->Serve(number, Descriptor(ends[0]));
      executor = std::make_unique<RawExecutor>(Descriptor(ends[1]));
    }
    return *executor;
  }
  // Ends the executor, as its process' end does.
  void End(uint64_t number) {
    serving_.erase(number);
    executors_.erase(number);
  }
  // Waits until the executor is refused, and returns why.
  std::string Refusal(uint64_t number) {
    MutexLock lock(&mu_);
    for (Patience patience; !refused_.contains(number);) {
      patience.Wait(&changed_, &mu_);
    }
    EXPECT_EQ(refused_.size(), 1u);
    EXPECT_TRUE(absl::IsInvalidArgument(refused_[number]));
    return std::string(refused_[number].message());
  }
  // Looks and proves. Returns whether the content was lent.
  bool Proves(uint64_t number, const std::string& announced,
              const std::string& known) {
    RawExecutor& who = executor(number);
    const uint64_t id = who.Find(announced, /*provable=*/true);
    v1::ContentAnswer answer = who.Next();
    if (!answer.has_prove()) return answer.has_lent();
    who.Prove(id, ProveContent(answer.prove(), known));
    // The result of another look is known before the proof's time has passed.
    const uint64_t other = who.Find(announced.substr(1));
    EXPECT_EQ(who.Next().id(), other);
    clock_.Advance(ContentProofs::TimeOf(announced.size()));
    answer = who.Next();
    EXPECT_EQ(answer.id(), id);
    // The tenant is charged for the proof, whatever its result.
    EXPECT_EQ(FromProtoDuration(answer.proof_time()),
              ContentProofs::TimeOf(announced.size()));
    return answer.has_lent();
  }
  size_t Described() {
    v1::WorkerState state;
    service_->Describe(1000, &state);
    return static_cast<size_t>(state.contents_size());
  }

  const std::string folder_ = testing::TempDir() + "/service_contents";
  const std::string bytes_ = std::string(300'000, 'w') + "end";
  size_t burst_ = 20'000;
  FakeClock clock_;
  Mutex mu_;
  CondVar changed_;
  std::map<uint64_t, absl::Status> refused_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<ContentService> service_;
  std::map<uint64_t, std::shared_ptr<void>> serving_;
  std::map<uint64_t, std::unique_ptr<RawExecutor>> executors_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SUPERVISOR_CONTENTS_CONTENT_SERVICE_FIXTURE_H_
