// Tests the supervisor's contents with executors that keep to the protocol.
#include "gpu_worker/supervisor/contents/content_service.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "common/hash/content_proof.h"
#include "gmock/gmock.h"
#include "gpu_worker/supervisor/contents/content_service_fixture.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

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
  // Contents that executors claim to have take no other content's place.
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

TEST_F(ContentServiceTest, ReturnedOrEvictedContentIsEmptyForTheBorrower) {
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

TEST_F(ContentServiceTest, OtherTenantsCannotTellWhetherAContentExists) {
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

TEST_F(ContentServiceTest, ContentThatTheSystemCannotLendIsAbsent) {
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
  // More than a burst and what the socket has room for.
  constexpr int kMany = 1'500;
  burst_ = 200;
  Restart();
  RawExecutor& who = executor(1);
  fcntl(who.socket(), F_SETFL, O_NONBLOCK);
  v1::ContentRequest request;
  request.set_id(1);
  request.set_give_up(true);
  int sent = 0;
  // Sends until the service has read nothing for a while.
  const auto send_some = [&] {
    pollfd watched = {who.socket(), POLLOUT, 0};
    while (sent < kMany && poll(&watched, 1, 100) == 1) {
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

TEST_F(ContentServiceTest, DescriptorsOfExecutorsAreClosed) {
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
  EXPECT_THAT(Refusal(1), testing::HasSubstr("with descriptors"));
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

}  // namespace
}  // namespace djinn::worker
