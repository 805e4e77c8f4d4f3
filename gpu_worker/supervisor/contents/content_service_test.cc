// Tests the supervisor's contents with executors that speak the protocol by
// themselves, as one may that its tenant has taken over.
#include "gpu_worker/supervisor/contents/content_service.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "common/base/patience.h"
#include "common/hash/content_proof.h"
#include "djinn/v1/supervision.pb.h"
#include "gmock/gmock.h"
#include "gpu_worker/supervisor/contents/packets.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

using ::testing::HasSubstr;

namespace fs = std::filesystem;

constexpr uint64_t kShare = 1 << 20;
// For three executors: 100 loans each.
constexpr size_t kDescriptors = 600;
constexpr int kPatienceMilliseconds = 120'000;

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

std::string BytesIn(const Descriptor& file, size_t size) {
  std::string bytes(size, '\0');
  const ssize_t got = pread(file.get(), bytes.data(), size, 0);
  bytes.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
  return bytes;
}

// Executor 1 is tenant "a"'s, 2 is "b"'s, 3 is "c"'s, and 4 is nobody's.
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
    answer = who.Next();
    EXPECT_EQ(answer.id(), id);
    // The work for the proof is the tenant's, whatever comes of it.
    EXPECT_TRUE(answer.has_proof_time());
    return answer.has_lent();
  }
  size_t Described() {
    v1::WorkerState state;
    service_->Describe(1000, &state);
    return static_cast<size_t>(state.contents_size());
  }

  const std::string folder_ = testing::TempDir() + "/service_contents";
  const std::string bytes_ = std::string(300'000, 'w') + "end";
  FakeClock clock_;
  Mutex mu_;
  CondVar changed_;
  std::map<uint64_t, absl::Status> refused_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<ContentService> service_;
  std::map<uint64_t, std::shared_ptr<void>> serving_;
  std::map<uint64_t, std::unique_ptr<RawExecutor>> executors_;
};

TEST_F(ContentServiceTest, DiskHasTheContentsOfAWorkerBefore) {
  executor(1).Keep(bytes_);
  v1::WorkerState state;
  service_->Describe(1000, &state);
  ASSERT_EQ(state.contents_size(), 1);
  EXPECT_EQ(state.contents(0).tenant(), "a");
  EXPECT_EQ(state.disk().cache().entries(), 1u);
  // A content that an executor has reported is not named twice.
  service_->Describe(1000, &state);
  EXPECT_EQ(state.contents_size(), 1);
  // What executors claim to have takes no other content's place.
  v1::WorkerState claimed;
  for (int i = 0; i < 3; ++i) claimed.add_contents()->set_tenant("b");
  service_->Describe(1, &claimed);
  EXPECT_EQ(claimed.contents_size(), 4);
  Restart();
  executor(1).Find(bytes_);
  Descriptor lent;
  EXPECT_TRUE(executor(1).Next(&lent).has_lent());
  EXPECT_TRUE(BytesIn(lent, bytes_.size()) == bytes_);
  // The supervisor wants no content twice.
  executor(1).Offer(bytes_);
  EXPECT_TRUE(executor(1).Next().absent());
  // It is the tenant's alone.
  executor(2).Find(bytes_);
  EXPECT_TRUE(executor(2).Next().absent());
}

TEST_F(ContentServiceTest, BorrowersCanReadAndNothingElse) {
  Restart(/*disk=*/false, /*kept=*/kShare);
  service_->SetSharing({"a"});
  executor(1).Keep(bytes_);
  executor(1).Find(bytes_);
  Descriptor lent;
  ASSERT_TRUE(executor(1).Next(&lent).has_lent());
  const int fd = lent.get();
  // Users other than the supervisor's and root cannot open the file for
  // writing.
  struct stat status = {};
  ASSERT_EQ(fstat(fd, &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0400u);
  EXPECT_LT(write(fd, "x", 1), 0);
  EXPECT_LT(pwrite(fd, "x", 1, 0), 0);
  EXPECT_NE(ftruncate(fd, 0), 0);
  EXPECT_NE(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096),
            0);
  EXPECT_NE(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
  EXPECT_EQ(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0),
            MAP_FAILED);
  EXPECT_EQ(fcntl(fd, F_GET_SEALS), F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SEAL);
  // A private mapping may be written, and changes nobody else's bytes.
  auto* const own = static_cast<char*>(
      mmap(nullptr, bytes_.size(), PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0));
  ASSERT_NE(own, MAP_FAILED);
  own[0] = 'x';
  EXPECT_TRUE(BytesIn(lent, bytes_.size()) == bytes_);
  munmap(own, bytes_.size());
}

TEST_F(ContentServiceTest, WhatIsGivenBackOrEvictedIsGoneForTheBorrower) {
  Restart(/*disk=*/true, /*kept=*/0);
  executor(1).Keep(bytes_);
  executor(1).Find(bytes_);
  Descriptor lent;
  const v1::ContentAnswer answer = executor(1).Next(&lent);
  ASSERT_TRUE(answer.has_lent());
  executor(1).GiveBack(answer.lent());
  // The next answer shows that the executor's message was served.
  executor(1).Find("absent");
  EXPECT_TRUE(executor(1).Next().absent());
  struct stat status = {};
  EXPECT_EQ(fstat(lent.get(), &status), 0);
  EXPECT_EQ(status.st_size, 0);
  EXPECT_EQ(status.st_blocks, 0);
}

TEST_F(ContentServiceTest, TenantsThatShareHaveContentsFromEachOther) {
  Restart(/*disk=*/false, /*kept=*/kShare);
  service_->SetSharing({"a", "b"});
  executor(1).Keep(bytes_);
  EXPECT_TRUE(Proves(2, bytes_, bytes_));
  // It is the tenant's own from now on, even if it shares no longer.
  service_->SetSharing({});
  executor(2).Find(bytes_);
  EXPECT_TRUE(executor(2).Next().has_lent());
  // It outlives the executor that sent it.
  service_->SetSharing({"b", "c"});
  End(1);
  EXPECT_TRUE(Proves(3, bytes_, bytes_));
}

TEST_F(ContentServiceTest, NobodyElseLearnsWhatIsHere) {
  Restart(/*disk=*/true, /*kept=*/kShare);
  service_->SetSharing({"a", "c"});
  executor(1).Keep(bytes_);
  // A tenant that does not share is not even asked.
  executor(2).Find(bytes_, /*provable=*/true);
  const v1::ContentAnswer here = executor(2).Next();
  executor(2).Find(std::string(bytes_.size(), 'n'), /*provable=*/true);
  v1::ContentAnswer missing = executor(2).Next();
  EXPECT_TRUE(here.absent());
  missing.set_id(here.id());
  EXPECT_EQ(here.SerializeAsString(), missing.SerializeAsString());
  // One that shares is asked for what is here and what is not, and gets nothing
  // for a wrong proof.
  const std::string absent(bytes_.size(), 'n');
  EXPECT_FALSE(Proves(3, bytes_, absent));
  EXPECT_FALSE(Proves(3, absent, absent));
  // The content of a tenant that does not share stays its own.
  service_->SetSharing({"b", "c"});
  EXPECT_FALSE(Proves(3, bytes_, bytes_));
}

TEST_F(ContentServiceTest, WithoutMemoryForThemTenantsShareNothing) {
  service_->SetSharing({"a", "b"});
  executor(1).Keep(bytes_);
  executor(2).Find(bytes_, /*provable=*/true);
  EXPECT_TRUE(executor(2).Next().absent());
}

TEST_F(ContentServiceTest, KeepsNoMoreThanItMayAndIsFair) {
  Restart(/*disk=*/false, /*kept=*/3 * bytes_.size());
  service_->SetSharing({"a", "b"});
  const auto content = [&](char c) { return std::string(bytes_.size(), c); };
  executor(2).Keep(content('b'));
  for (const char c : {'1', '2', '3', '4', '5'}) executor(1).Keep(content(c));
  EXPECT_EQ(Described(), 3u);
  // The tenant that keeps the most gives up its own.
  executor(2).Find(content('b'));
  EXPECT_TRUE(executor(2).Next().has_lent());
}

TEST_F(ContentServiceTest, AnExecutorHasNoMoreThanItsShare) {
  const std::string half(kShare / 2 + 1, 'h');
  executor(1).Keep(half);
  executor(1).Find(half);
  const v1::ContentAnswer first = executor(1).Next();
  ASSERT_TRUE(first.has_lent());
  // Neither a second loan nor a content that it sends has room.
  executor(1).Find(half);
  EXPECT_TRUE(executor(1).Next().absent());
  executor(1).Offer(std::string(kShare / 2, 'o'));
  EXPECT_TRUE(executor(1).Next().absent());
  executor(1).GiveBack(first.lent());
  executor(1).Find(half);
  EXPECT_TRUE(executor(1).Next().has_lent());
  // Others have theirs.
  executor(2).Keep(half);
  // Nothing fits that is larger than the whole share, or empty.
  executor(3).Offer(std::string(kShare + 1, 'x'));
  EXPECT_TRUE(executor(3).Next().absent());
  executor(3).Find(std::string(kShare + 1, 'x'));
  EXPECT_TRUE(executor(3).Next().absent());
  executor(3).Offer("");
  EXPECT_TRUE(executor(3).Next().absent());
}

TEST_F(ContentServiceTest, ALookCountsUntilTheDiskLetsItGo) {
  const std::string half(kShare / 2 + 1, 'h');
  RawExecutor& who = executor(1);
  who.Keep(half);
  // The disk's reader waits for the bytes of a pipe in the place of the file.
  std::string file;
  for (const auto& entry : fs::recursive_directory_iterator(folder_)) {
    if (entry.is_regular_file() && entry.file_size() > half.size()) {
      file = entry.path();
    }
  }
  ASSERT_TRUE(fs::remove(file));
  ASSERT_EQ(mkfifo(file.c_str(), 0600), 0);
  const uint64_t look = who.Find(half);
  Descriptor bytes(open(file.c_str(), O_WRONLY | O_CLOEXEC));
  v1::ContentRequest request;
  request.set_id(look);
  request.set_give_up(true);
  who.Send(request);
  for (const std::string& content : {std::string("small"), half}) {
    const uint64_t another = who.Find(content);
    const v1::ContentAnswer answer = who.Next();
    EXPECT_EQ(answer.id(), another);
    EXPECT_TRUE(answer.absent());
  }
  bytes = Descriptor();
  const v1::ContentAnswer answer = who.Next();
  EXPECT_EQ(answer.id(), look);
  EXPECT_TRUE(answer.absent());
  who.Offer(half);
  EXPECT_TRUE(who.Next().send());
}

TEST_F(ContentServiceTest, WhatTheSystemDoesNotLendIsAbsent) {
  Restart(/*disk=*/false, /*kept=*/kShare);
  service_->SetSharing({"a"});
  RawExecutor& who = executor(1);
  who.Keep("tiny");
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit low = before;
  low.rlim_cur = 3;
  // No further descriptor can be opened.
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  who.Find("tiny");
  const v1::ContentAnswer refused = who.Next();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_TRUE(refused.absent());
  who.Find("tiny");
  EXPECT_TRUE(who.Next().has_lent());
}

TEST_F(ContentServiceTest, AnExecutorWithManyMessagesWaits) {
  constexpr int kMany = 50'000;
  RawExecutor& who = executor(1);
  fcntl(who.socket(), F_SETFL, O_NONBLOCK);
  v1::ContentRequest request;
  request.set_id(1);
  request.set_give_up(true);
  int sent = 0;
  // Sends until the service has read nothing for a while.
  const auto send_some = [&] {
    pollfd watched = {who.socket(), POLLOUT, 0};
    while (sent < kMany && poll(&watched, 1, 300) == 1) {
      sent += SendPacket(who.socket(), request).ok();
    }
  };
  send_some();
  EXPECT_LT(sent, kMany);
  for (Patience patience; sent < kMany; patience.Yield()) {
    clock_.Advance(absl::Seconds(10));
    send_some();
  }
  clock_.Advance(absl::Hours(1));
  fcntl(who.socket(), F_SETFL, 0);
  who.Find("absent");
  EXPECT_TRUE(who.Next().absent());
}

TEST_F(ContentServiceTest, AnExecutorHasOnlySoManyLoans) {
  executor(1).Keep("tiny");
  executor(2).Keep("tiny");
  std::vector<uint64_t> loans;
  for (int i = 0; i < 100; ++i) {
    executor(1).Find("tiny");
    loans.push_back(executor(1).Next().lent());
    EXPECT_NE(loans.back(), 0u);
  }
  executor(1).Find("tiny");
  EXPECT_TRUE(executor(1).Next().absent());
  executor(2).Find("tiny");
  EXPECT_TRUE(executor(2).Next().has_lent());
  executor(1).GiveBack(loans[50]);
  executor(1).Find("tiny");
  EXPECT_TRUE(executor(1).Next().has_lent());
}

TEST_F(ContentServiceTest, TheSpareExecutorHasNoContents) {
  executor(4).Offer(bytes_);
  EXPECT_TRUE(executor(4).Next().absent());
  executor(4).Find(bytes_);
  EXPECT_TRUE(executor(4).Next().absent());
}

TEST_F(ContentServiceTest, DescriptorsOfExecutorsAreNotTaken) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const Descriptor reading(ends[0]);
  v1::ContentRequest request;
  request.set_id(1);
  *request.mutable_find() = RawExecutor::NameOf(bytes_);
  {
    const Descriptor writing(ends[1]);
    ASSERT_TRUE(SendPacket(executor(1).socket(), request, writing).ok());
  }
  EXPECT_TRUE(executor(1).Next().absent());
  // No copy of the writing end is left.
  char byte;
  EXPECT_EQ(read(reading.get(), &byte, 1), 0);
}

TEST_F(ContentServiceTest, AProofThatDoesNotComeIsGivenUp) {
  Restart(/*disk=*/false, /*kept=*/kShare);
  service_->SetSharing({"a", "b"});
  RawExecutor& who = executor(2);
  const uint64_t given_up = who.Find(bytes_, /*provable=*/true);
  EXPECT_TRUE(who.Next().has_prove());
  v1::ContentRequest request;
  request.set_id(given_up);
  request.set_give_up(true);
  who.Send(request);
  v1::ContentAnswer answer = who.Next();
  EXPECT_EQ(answer.id(), given_up);
  EXPECT_TRUE(answer.absent());
  // A proof that comes too late is no offence.
  who.Prove(given_up, std::string(kContentMacBytes, 'm'));
  const uint64_t overdue = who.Find(bytes_, /*provable=*/true);
  EXPECT_TRUE(who.Next().has_prove());
  clock_.Advance(absl::Hours(1));
  answer = who.Next();
  EXPECT_EQ(answer.id(), overdue);
  EXPECT_TRUE(answer.absent());
}

struct Lie {
  const char* name;
  std::function<void(RawExecutor*)> tell;
  const char* why;
};

class HostileContentsTest : public ContentServiceTest,
                            public testing::WithParamInterface<Lie> {};

TEST_P(HostileContentsTest, EndsItsExecutorAlone) {
  Restart(/*disk=*/true, /*kept=*/kShare);
  service_->SetSharing({"a", "b"});
  executor(2).Keep(bytes_);
  GetParam().tell(&executor(1));
  EXPECT_THAT(Refusal(1), HasSubstr(GetParam().why));
  executor(2).Find(bytes_);
  EXPECT_TRUE(executor(2).Next().has_lent());
}

v1::ContentRequest WithId(uint64_t id) {
  v1::ContentRequest request;
  request.set_id(id);
  return request;
}

INSTANTIATE_TEST_SUITE_P(
    All, HostileContentsTest,
    testing::Values(
        Lie{"Nothing", [](RawExecutor* e) { e->Send(WithId(1)); }, "empty"},
        Lie{"NoMessage",
            [](RawExecutor* e) { send(e->socket(), "\xff\xff", 2, 0); },
            "no message"},
        Lie{"LargePacket",
            [](RawExecutor* e) {
              const std::string bytes(kMaxPacketBytes + 1, '\0');
              send(e->socket(), bytes.data(), bytes.size(), 0);
            },
            "packet of more than"},
        Lie{"BytesOfAnotherHash",
            [](RawExecutor* e) {
              const uint64_t id = e->Offer("promised");
              EXPECT_TRUE(e->Next().send());
              e->SendPieces(id, "the rest");
            },
            "another hash"},
        Lie{"MoreBytesThanItOffered",
            [](RawExecutor* e) {
              const uint64_t id = e->Offer("promised");
              EXPECT_TRUE(e->Next().send());
              e->SendPieces(id, "promised and more");
            },
            "nobody asked for"},
        Lie{"BytesThatItDidNotOffer",
            [](RawExecutor* e) { e->SendPieces(1, "bytes"); },
            "nobody asked for"},
        Lie{"BytesOfAnotherOffer",
            [](RawExecutor* e) {
              e->Offer("promised");
              EXPECT_TRUE(e->Next().send());
              e->SendPieces(77, "promised");
            },
            "nobody asked for"},
        Lie{"TwoOffers",
            [](RawExecutor* e) {
              e->Offer("promised");
              e->Offer("another");
            },
            "while it sends"},
        Lie{"IdThatFalls",
            [](RawExecutor* e) {
              v1::ContentRequest request = WithId(5);
              *request.mutable_find() = RawExecutor::NameOf("x");
              e->Send(request);
              e->Send(request);
            },
            "does not rise"},
        Lie{"LoanThatItDoesNotHave", [](RawExecutor* e) { e->GiveBack(1); },
            "not lent"},
        Lie{"LoanThatItGaveBack",
            [](RawExecutor* e) {
              e->Keep("bytes");
              e->Find("bytes");
              const uint64_t loan = e->Next().lent();
              e->GiveBack(loan);
              e->GiveBack(loan);
            },
            "not lent"},
        Lie{"ProofOfAnotherSize",
            [](RawExecutor* e) {
              const uint64_t id = e->Find("bytes", /*provable=*/true);
              EXPECT_TRUE(e->Next().has_prove());
              e->Prove(id, "short");
            },
            "another size"},
        Lie{"ProofThatNobodyAskedFor",
            [](RawExecutor* e) {
              e->Prove(9, std::string(kContentMacBytes, 'm'));
            },
            "proof of nothing"},
        Lie{"ManyLooks",
            [](RawExecutor* e) {
              for (size_t i = 0; i <= ContentService::kMaxLooks; ++i) {
                e->Find(std::string(10 + i, 'x'), /*provable=*/true);
              }
            },
            "too many looks"}),
    [](const testing::TestParamInfo<Lie>& info) { return info.param.name; });

}  // namespace
}  // namespace djinn::worker
