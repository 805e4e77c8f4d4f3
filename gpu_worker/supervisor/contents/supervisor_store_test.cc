// Tests an executor's end of the socket for contents with a real service at the
// other end.
#include "gpu_worker/supervisor/contents/supervisor_store.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "common/base/mutex.h"
#include "common/base/patience.h"
#include "common/base/random.h"
#include "common/hash/content_proof.h"
#include "gmock/gmock.h"
#include "gpu_worker/device/fake/fake_device.h"
#include "gpu_worker/supervisor/contents/content_service.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

// Memory of the supervisor.
class Mapped : public Buffer {
 public:
  Mapped(void* memory, uint64_t bytes, std::shared_ptr<void> owner)
      : memory_(static_cast<char*>(memory)),
        bytes_(bytes),
        owner_(std::move(owner)) {}
  uint64_t size_bytes() const override { return bytes_; }
  char* memory() const { return memory_; }

 private:
  char* const memory_;
  const uint64_t bytes_;
  const std::shared_ptr<void> owner_;
};

// One executor without its process.
struct Executor {
  FakeDevice device{1 << 30};
  ContentCache cache{100};
  std::unique_ptr<SupervisorStore> store;
  std::shared_ptr<void> serving;
};

class SupervisorStoreTest : public testing::Test {
 protected:
  SupervisorStoreTest() {
    ContentService::Options options;
    options.executor_bytes = 8 << 20;
    options.kept_bytes = 8 << 20;
    options.tenant_of = [](uint64_t executor) {
      return std::string(1, "?ab"[executor]);
    };
    options.refuse = [](uint64_t, const absl::Status& why) {
      ADD_FAILURE() << why;
    };
    options.changed = [] {};
    service_ = std::make_unique<ContentService>(
        std::move(options), nullptr, Clock::Real(), RandomSource::Real());
    service_->SetSharing({"a", "b"});
  }

  std::unique_ptr<Executor> Start(uint64_t number, WrapMemory wrap = nullptr) {
    auto executor = std::make_unique<Executor>();
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    executor->serving = service_->Serve(number, Descriptor(ends[0]));
    SupervisorStore::Options options;
    options.wrap = std::move(wrap);
    options.offer_after = absl::ZeroDuration();
    executor->store = std::make_unique<SupervisorStore>(
        Descriptor(ends[1]), std::move(options), Clock::Real());
    executor->store->Bind(&executor->device, &executor->cache);
    executor->store->Start();
    return executor;
  }
  // Returns the bytes of the metric with this label.
  bool Shows(const std::string& line) {
    Exposition metrics;
    service_->Collect(&metrics);
    return metrics.Text().find(line + "\n") != std::string::npos;
  }
  void AwaitShown(const std::string& line) {
    for (Patience patience; !Shows(line);) patience.Yield();
  }
  // Has executor 1 keep the content.
  void Keep(Executor* executor) {
    std::shared_ptr<Buffer> buffer = *executor->device.Allocate(bytes_.size());
    EXPECT_TRUE(executor->device.Write(buffer.get(), 0, bytes_).ok());
    executor->cache.Insert("a", hash_, std::move(buffer), absl::Seconds(1));
    executor->store->Keep("a", hash_, bytes_.size(), /*found=*/true);
    AwaitShown("djinn_worker_kept_content_bytes{use=\"kept\"} 300003");
  }
  std::shared_ptr<ContentLoad> Look(Executor* executor, ContentHash hash,
                                    std::shared_ptr<Buffer> room = nullptr) {
    if (room == nullptr) {
      room = *executor->device.AllocateUnset(bytes_.size());
    }
    std::shared_ptr<ContentLoad> load =
        executor->store->Load({.tenant = "b",
                               .hash = hash,
                               .buffer = std::move(room),
                               .settled =
                                   [this] {
                                     MutexLock lock(&mu_);
                                     changed_.SignalAll();
                                   },
                               .provable = true,
                               .charge =
                                   [this](absl::Duration time) {
                                     charged_ += time > absl::ZeroDuration();
                                   }});
    if (load != nullptr) Await(*load);
    return load;
  }
  template <typename Waited>
  void Await(const Waited& waited) {
    MutexLock lock(&mu_);
    for (Patience patience; !waited.settled();) patience.Wait(&changed_, &mu_);
  }
  // Returns what the look finds by a proof with these bytes.
  std::shared_ptr<Buffer> Prove(ContentLoad* load, const std::string& known) {
    EXPECT_FALSE(load->ok());
    const std::shared_ptr<ContentChallenge> challenge = load->challenge();
    if (challenge == nullptr) return nullptr;
    EXPECT_FALSE(challenge->settled());
    challenge->Answer(ProveContent(challenge->key(), known));
    Await(*challenge);
    EXPECT_TRUE(challenge->answered());
    return challenge->Take();
  }

  const std::string bytes_ = std::string(300'000, 'w') + "end";
  const ContentHash hash_ = HashContent(bytes_.data(), bytes_.size());
  std::atomic<int> charged_{0};
  Mutex mu_;
  CondVar changed_;
  std::unique_ptr<ContentService> service_;
};

constexpr char kNothingLent[] =
    "djinn_worker_kept_content_bytes{use=\"lent\"} 0";

TEST_F(SupervisorStoreTest, ContentOfAnotherTenantIsCopiedAfterAProof) {
  const auto a = Start(1);
  const auto b = Start(2);
  Keep(a.get());
  const std::shared_ptr<Buffer> room = *b->device.AllocateUnset(bytes_.size());
  const auto load = Look(b.get(), hash_, room);
  ASSERT_NE(load, nullptr);
  const std::shared_ptr<Buffer> found = Prove(load.get(), bytes_);
  EXPECT_EQ(found, room);
  EXPECT_TRUE(b->device.HostBytes(room)->bytes == bytes_);
  EXPECT_EQ(charged_, 1);
  // A copy needs no loan.
  AwaitShown(kNothingLent);
}

TEST_F(SupervisorStoreTest, MappedContentGoesBackWithItsBuffer) {
  const WrapMemory wrap = [](void* memory, uint64_t bytes,
                             std::shared_ptr<void> owner) {
    return std::make_shared<Mapped>(memory, bytes, std::move(owner));
  };
  const auto a = Start(1);
  const auto b = Start(2, wrap);
  Keep(a.get());
  std::shared_ptr<Buffer> found = Prove(Look(b.get(), hash_).get(), bytes_);
  ASSERT_NE(found, nullptr);
  char* const memory = static_cast<Mapped*>(found.get())->memory();
  EXPECT_EQ(std::memcmp(memory, bytes_.data(), bytes_.size()), 0);
  AwaitShown("djinn_worker_kept_content_bytes{use=\"lent\"} 300003");
  // The executor alone sees its writes.
  memory[0] = 'x';
  const auto again = Look(b.get(), hash_);
  ASSERT_TRUE(again->ok());
  std::shared_ptr<Buffer> second = again->Take();
  EXPECT_EQ(static_cast<Mapped*>(second.get())->memory()[0], 'w');
  found = nullptr;
  second = nullptr;
  AwaitShown(kNothingLent);
}

TEST_F(SupervisorStoreTest, WrongProofAndAbsentContentAreMisses) {
  const auto a = Start(1);
  const auto b = Start(2);
  Keep(a.get());
  const std::string other(bytes_.size(), 'o');
  EXPECT_EQ(Prove(Look(b.get(), hash_).get(), other), nullptr);
  const ContentHash absent = HashContent(other.data(), other.size());
  EXPECT_EQ(Prove(Look(b.get(), absent).get(), other), nullptr);
  service_->SetSharing({});
  const auto load = Look(b.get(), absent);
  EXPECT_FALSE(load->ok());
  EXPECT_EQ(load->challenge(), nullptr);
}

TEST_F(SupervisorStoreTest, ExpiredChallengeSettlesOnce) {
  const auto b = Start(2);
  auto load = Look(b.get(), hash_);
  std::shared_ptr<ContentChallenge> challenge = load->challenge();
  ASSERT_NE(challenge, nullptr);
  challenge->Expire();
  EXPECT_TRUE(challenge->settled());
  EXPECT_EQ(challenge->Take(), nullptr);
  challenge->Answer(std::string(kContentMacBytes, 'm'));
  // One that is forgotten frees its place among the executor's looks.
  challenge = nullptr;
  load = nullptr;
  for (size_t i = 0; i < 2 * ContentService::kMaxLooks; ++i) {
    for (Patience patience; Look(b.get(), hash_) == nullptr;) patience.Yield();
  }
}

TEST_F(SupervisorStoreTest, SupervisorThatDoesNotAnswerIsGivenUp) {
  Executor executor;
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  const Descriptor silent(ends[0]);
  executor.store = std::make_unique<SupervisorStore>(
      Descriptor(ends[1]),
      SupervisorStore::Options{.offer_after = absl::ZeroDuration(),
                               .answer_timeout = absl::Milliseconds(10)},
      Clock::Real());
  executor.store->Bind(&executor.device, &executor.cache);
  const auto load = executor.store->Load(
      {.tenant = "b",
       .hash = hash_,
       .buffer = *executor.device.AllocateUnset(bytes_.size()),
       .settled = [this] {
         MutexLock lock(&mu_);
         changed_.SignalAll();
       }});
  ASSERT_NE(load, nullptr);
  executor.cache.Insert("a", hash_, *executor.device.Allocate(bytes_.size()),
                        absl::Seconds(1));
  executor.store->Keep("a", hash_, bytes_.size(), /*found=*/true);
  executor.store->Start();
  Await(*load);
  EXPECT_FALSE(load->ok());
  EXPECT_EQ(load->challenge(), nullptr);
}

TEST_F(SupervisorStoreTest, WithoutSupervisorNothingIsFound) {
  const auto b = Start(2);
  auto load = Look(b.get(), hash_);
  const auto challenge = load->challenge();
  ASSERT_NE(challenge, nullptr);
  b->serving = nullptr;
  Await(*challenge);
  EXPECT_EQ(challenge->Take(), nullptr);
  EXPECT_EQ(Look(b.get(), hash_), nullptr);
  b->store->Keep("b", hash_, bytes_.size(), /*found=*/true);
  b->store->Stop();
}

}  // namespace
}  // namespace djinn::worker
