// Tests uploads, contents and reads.
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gpu_worker/store/disk_store.h"
#include "gpu_worker/testing/core_fixture.h"

namespace djinn::worker {
namespace {

TEST_F(WorkerCoreTest, AnUploadArrivesInChunksAndIsFoundAgain) {
  std::unique_ptr<TestClient> client = Open();
  std::string bytes(3 * kBulkChunkBytes + 100, 'a');
  bytes[5] = 'b';
  client->InstallTransfer(1, 1, bytes);
  EXPECT_TRUE(client->WaitDecision(1).send());
  client->SendBytes(1, bytes);
  EXPECT_TRUE(client->WaitCompleted(1));
  // Reads the whole value on Bulk.
  srg::TensorView view;
  view.data_type = srg::DataType::kUint8;
  view.sizes = {static_cast<int64_t>(bytes.size())};
  view.strides = {1};
  const v1::ReadReply reply = client->WaitRead(client->SendRead(1, view, 77));
  EXPECT_EQ(reply.bulk_bytes(), bytes.size());
  EXPECT_EQ(client->WaitBulk(77, bytes.size()), bytes);
  // Another session of the tenant does not send the bytes again.
  std::unique_ptr<TestClient> second = Open("s2", "t1");
  second->InstallTransfer(1, 1, bytes);
  EXPECT_TRUE(second->WaitDecision(1).already_held());
  // Another tenant has to send the bytes.
  std::unique_ptr<TestClient> stranger = Open("s3", "t2");
  stranger->InstallTransfer(1, 1, bytes);
  EXPECT_TRUE(stranger->WaitDecision(1).send());
}

TEST_F(WorkerCoreTest, VersionsThatAreLeftOutMayChangeTheSize) {
  std::unique_ptr<TestClient> client = Open();
  client->InstallInline(1, FloatBytes({1, 2}));
  client->SkipTo(7, 1, 2 * sizeof(float));
  client->SkipTo(3, 2, 2 * sizeof(float));
  client->InstallSeed(3, 100);
  client->SkipTo(9, 3, 0);
  // Reads and writes name the versions after those that were left out.
  EXPECT_EQ(client->Read(1, 2), (Floats{1, 2}));
  EXPECT_EQ(client->Read(2, 2), (Floats{0, 0}));
  client->Define(1, AddTo());
  client->Run(1, {2, 1});
  EXPECT_EQ(client->Read(2, 2), (Floats{1, 2}));
  client->InstallSeed(3, 5);
  EXPECT_EQ(client->Read(1, 2), (Floats{1, 2}));
  client->SkipTo(8, 1, 4 * sizeof(float));
  EXPECT_EQ(client->Read(1, 4).size(), 4);
  client->SkipTo(7, 1, 0);
  EXPECT_EQ(ErrorReason(client->WaitClosed()), "PROTOCOL_VIOLATION");
}

TEST_F(WorkerCoreTest, AWriterOfSharedContentsChangesItsOwnCopyOnly) {
  FakeGraph s;
  s.FillInPlace(s.Bound(), 600);
  const std::string bytes = FloatBytes(Floats(600, 1));
  std::unique_ptr<TestClient> a = Open("s1", "t1");
  std::unique_ptr<TestClient> b = Open("s2", "t1");
  a->InstallTransfer(1, 1, bytes);
  a->WaitDecision(1);
  a->SendBytes(1, bytes);
  EXPECT_TRUE(a->WaitCompleted(1));
  b->InstallTransfer(1, 1, bytes);
  b->Define(1, s.get());
  b->Run(1, {1}, {5});
  EXPECT_EQ(b->Read(1, 2), (Floats{5, 5}));
  EXPECT_EQ(a->Read(1, 2), (Floats{1, 1}));
  EXPECT_EQ(core_->counters().write_copies, 1u);
  EXPECT_EQ(core_->ledger().usage().used, 2 * bytes.size());
}

TEST_F(WorkerCoreTest, BytesWithoutTheAnnouncedHashAreNotShared) {
  std::unique_ptr<TestClient> client = Open();
  const std::string bytes = FloatBytes(Floats(600, 1));
  client->InstallTransfer(1, 1, bytes, ContentHash{1, 2});
  EXPECT_TRUE(client->WaitDecision(1).send());
  client->SendBytes(1, bytes);
  EXPECT_EQ(client->Read(1, 2), (Floats{1, 1}));
  ASSERT_EQ(core_->contents().List().size(), 1u);
  EXPECT_EQ(core_->contents().List()[0].hash,
            HashContent(bytes.data(), bytes.size()));
  client->InstallTransfer(2, 2, bytes, ContentHash{1, 2});
  EXPECT_TRUE(client->WaitDecision(2).send());
  client->InstallTransfer(3, 3, bytes);
  client->SendBytes(2, bytes);
  EXPECT_TRUE(client->WaitDecision(3).already_held());
}

TEST_F(WorkerCoreTest, ATransferThatStandsStillPoisonsAndLateBytesAreIgnored) {
  std::unique_ptr<TestClient> client = Open();
  const std::string bytes(kBulkChunkBytes + 2000, 'x');
  client->InstallTransfer(1, 1, bytes);
  client->WaitDecision(1);
  client->SendBytes(1, bytes, 0, kBulkChunkBytes);
  // Nothing follows the chunk for long enough, whenever it arrives.
  Grant(Lease("s1", "t1"), 1000000);
  EXPECT_TRUE(WaitUntil([&] {
    clock_.Advance(absl::Seconds(31));
    return client->completed() == 1;
  }));
  EXPECT_EQ(client->ReadError(1).reason(), "TRANSFER_TIMEOUT");
  client->SendBytes(1, bytes, kBulkChunkBytes);
  client->InstallInline(1, FloatBytes({3}));
  EXPECT_EQ(client->Read(1, 1), (Floats{3}));
}

TEST_F(WorkerCoreTest, BytesOutsideTheTransferEndTheStream) {
  std::unique_ptr<TestClient> client = Open();
  const std::string bytes(2000, 'x');
  client->InstallTransfer(1, 1, bytes);
  client->WaitDecision(1);
  client->SendBytes(1, std::string(2001, 'x'));
  EXPECT_EQ(ErrorReason(client->WaitClosed()), "PROTOCOL_VIOLATION");
  EXPECT_TRUE(WaitMemory(0));
}

TEST_F(WorkerCoreTest, AnUploadWithoutRoomIsRefusedAndTheStorageKeepsItsValue) {
  std::unique_ptr<TestClient> client = Open();
  client->InstallInline(1, FloatBytes({4, 5}));
  const std::string bytes(9 << 20, 'x');
  client->InstallTransfer(1, 1, bytes);
  const v1::TransferDecision decision = client->WaitDecision(1);
  EXPECT_EQ(decision.refused().reason(), "SESSION_MEMORY");
  EXPECT_NE(decision.refused().message().find("limit 8388608"),
            std::string::npos);
  EXPECT_EQ(client->Read(1, 2), (Floats{4, 5}));
  client->InstallTransfer(2, 2, bytes);
  EXPECT_EQ(client->WaitDecision(2).refused().reason(), "SESSION_MEMORY");
  EXPECT_EQ(client->ReadError(2).reason(), "SESSION_MEMORY");
}

TEST_F(WorkerCoreTest, ContentsAndOtherStoragesHaveLimitsOfTheirOwn) {
  FakeGraph s;
  s.FillInPlace(s.Bound(), 600);
  const std::string bytes = FloatBytes(Floats(600, 1));
  v1::LeaseClaims lease = Lease("s1", "t1");
  lease.mutable_limits()->set_content_bytes(bytes.size() + 1);
  lease.mutable_limits()->set_storage_bytes(bytes.size() - 1);
  Grant(lease);
  std::unique_ptr<TestClient> client = Connect(HelloFor("s1"));
  client->InstallTransfer(1, 1, bytes);
  EXPECT_TRUE(client->WaitDecision(1).send());
  client->SendBytes(1, bytes);
  EXPECT_TRUE(client->WaitCompleted(1));
  // There is no room for another content, neither sent nor shared.
  client->InstallTransfer(2, 2, FloatBytes(Floats(600, 2)));
  EXPECT_THAT(client->WaitDecision(2).refused().message(),
              testing::HasSubstr("memory of the session for contents: limit "
                                 "2401 bytes, used 2400, asked 2400"));
  client->InstallTransfer(3, 3, bytes);
  EXPECT_EQ(client->WaitDecision(3).refused().reason(), "SESSION_MEMORY");
  // There is no room for a result as large as that either.
  client->Create(4, bytes.size());
  EXPECT_THAT(client->ReadError(4).message(),
              testing::HasSubstr("memory of the session but for contents: "
                                 "limit 2399 bytes, used 0, asked 2400"));
  // A writer of a content needs memory of its own for it.
  client->Define(1, s.get());
  const uint64_t copies = core_->counters().write_copies;
  std::unique_ptr<TestClient> other = Open("s2", "t1");
  other->InstallTransfer(1, 1, bytes);
  EXPECT_TRUE(other->WaitDecision(1).already_held());
  client->Run(1, {1}, {5});
  EXPECT_THAT(client->ReadError(1).message(),
              testing::HasSubstr("memory of the session but for contents"));
  EXPECT_EQ(core_->counters().write_copies, copies);
  EXPECT_EQ(other->Read(1, 1), (Floats{1}));
  // Raised limits take effect at once.
  lease.mutable_limits()->set_storage_bytes(1 << 20);
  Grant(lease);
  EXPECT_TRUE(client->WaitCompleted(client->Create(5, bytes.size())));
  EXPECT_EQ(client->Read(5, 1), (Floats{0}));
}

TEST_F(WorkerCoreTest, AReadThatCopiesIsAccountedFor) {
  std::unique_ptr<TestClient> client = Open();
  std::unique_ptr<TestClient> other = Open("s2");
  client->InstallInline(1, FloatBytes({7}));
  EXPECT_TRUE(client->WaitCompleted(client->Create(2, 7 << 20)));
  EXPECT_TRUE(other->WaitCompleted(other->Create(1, 7 << 20)));
  const uint64_t before = core_->ledger().usage().used;
  srg::TensorView expanded;
  expanded.data_type = srg::DataType::kFloat32;
  expanded.sizes = {1 << 20};
  expanded.strides = {0};
  const v1::ErrorDetail error =
      client->WaitRead(client->SendRead(1, expanded, 1)).error();
  EXPECT_EQ(error.code(),
            static_cast<int>(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(error.reason(), "DEVICE_MEMORY");
  // A read that fits succeeds, and its copy does not stay behind.
  const size_t bytes = size_t{1} << 20;
  expanded.sizes = {static_cast<int64_t>(bytes / sizeof(float))};
  EXPECT_EQ(client->WaitRead(client->SendRead(1, expanded, 2)).bulk_bytes(),
            bytes);
  EXPECT_EQ(client->WaitBulk(2, bytes),
            FloatBytes(Floats(bytes / sizeof(float), 7)));
  EXPECT_TRUE(WaitMemory(before));
}

class DiskTest : public WorkerCoreTest {
 protected:
  DiskTest() {
    std::filesystem::remove_all(folder_);
    Restart();
  }

  // Replaces the worker as a new process would.
  void Restart() {
    core_.reset();
    absl::StatusOr<std::unique_ptr<DiskStore>> store = DiskStore::Open(
        {.directory = folder_, .limit_bytes = 64 << 20}, &clock_);
    ASSERT_TRUE(store.ok()) << store.status();
    WorkerCoreOptions options;
    options.store = *std::move(store);
    Start(options);
  }
  void Upload(TestClient* client, uint64_t id) {
    client->InstallTransfer(id, id, bytes_);
    EXPECT_TRUE(client->WaitDecision(id).send());
    client->SendBytes(id, bytes_);
    EXPECT_TRUE(client->WaitCompleted(id));
  }
  // Waits until the content is written, once a storage has used it for long
  // enough.
  void WaitWritten() {
    EXPECT_TRUE(WaitUntil([&] {
      clock_.Advance(absl::Seconds(1));
      return core_->Snapshot().disk().cache().entries() == 1;
    }));
  }

  const std::string folder_ = testing::TempDir() + "/disk";
  const std::string bytes_ = FloatBytes(Floats(300'000, 7));
};

TEST_F(DiskTest, ARestartedWorkerHasWhatItHad) {
  {
    std::unique_ptr<TestClient> client = Open();
    Upload(client.get(), 1);
    WaitWritten();
  }
  Restart();
  EXPECT_EQ(core_->ledger().usage().used, 0u);
  // The coordinator learns which contents need not be sent.
  ASSERT_EQ(core_->Snapshot().contents_size(), 1);
  EXPECT_EQ(core_->Snapshot().contents(0).tenant(), "t1");
  std::unique_ptr<TestClient> client = Open();
  client->InstallTransfer(1, 1, bytes_);
  EXPECT_TRUE(client->WaitDecision(1).already_held());
  EXPECT_EQ(client->Read(1, 2), (Floats{7, 7}));
  // From now on the content is found in memory, where it is kept once.
  client->InstallTransfer(2, 2, bytes_);
  EXPECT_TRUE(client->WaitDecision(2).already_held());
  EXPECT_EQ(core_->Snapshot().disk().cache().hits(), 1u);
  EXPECT_EQ(core_->Snapshot().contents_size(), 1);
  EXPECT_EQ(core_->ledger().usage().used, bytes_.size());
  // Another tenant does not have the content.
  std::unique_ptr<TestClient> stranger = Open("s2", "t2");
  stranger->InstallTransfer(1, 1, bytes_);
  EXPECT_TRUE(stranger->WaitDecision(1).send());
}

TEST_F(DiskTest, ABrokenFileIsSentAgain) {
  {
    std::unique_ptr<TestClient> client = Open();
    Upload(client.get(), 1);
    WaitWritten();
  }
  core_.reset();
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(folder_)) {
    if (!entry.is_regular_file() || entry.file_size() == 0) continue;
    std::fstream file(entry.path(), std::ios::in | std::ios::out);
    file.seekp(100'000);
    file.put('x');
  }
  Restart();
  std::unique_ptr<TestClient> client = Open();
  Upload(client.get(), 1);
  EXPECT_EQ(client->Read(1, 2), (Floats{7, 7}));
  EXPECT_EQ(core_->Snapshot().disk().corrupt_files(), 1u);
  EXPECT_EQ(core_->ledger().usage().used, bytes_.size());
}

TEST_F(DiskTest, ContentOnDiskIsRefusedWithoutRoomInMemory) {
  {
    std::unique_ptr<TestClient> client = Open();
    Upload(client.get(), 1);
    WaitWritten();
  }
  Restart();
  std::unique_ptr<TestClient> a = Open("s2");
  std::unique_ptr<TestClient> b = Open("s3");
  EXPECT_TRUE(a->WaitCompleted(a->Create(1, 8 << 20)));
  EXPECT_TRUE(b->WaitCompleted(b->Create(1, (8 << 20) - 1000)));
  std::unique_ptr<TestClient> client = Open();
  client->InstallTransfer(1, 1, bytes_);
  EXPECT_EQ(client->WaitDecision(1).refused().reason(), "DEVICE_MEMORY");
}

TEST_F(WorkerCoreTest, UnderPressureIdleContentsGoBeforeTheyMust) {
  // Holds seven MiB of contents, one of them in use.
  std::unique_ptr<TestClient> client = Open("s1");
  for (uint64_t id = 1; id <= 7; ++id) {
    const std::string bytes(1 << 20, static_cast<char>('a' + id));
    client->InstallTransfer(id, id, bytes);
    client->WaitDecision(id);
    client->SendBytes(id, bytes);
    EXPECT_TRUE(client->WaitCompleted(id));
  }
  EXPECT_TRUE(client->WaitCompleted(client->Free({2, 3, 4, 5, 6, 7})));
  EXPECT_EQ(core_->contents().stats().entries, 7u);
  EXPECT_EQ(core_->ledger().usage().pressure(), MemoryPressure::kNone);
  // Another seven MiB make 14 of 16.
  std::unique_ptr<TestClient> other = Open("s2");
  EXPECT_TRUE(other->WaitCompleted(other->Create(1, 7 << 20)));
  EXPECT_TRUE(WaitUntil([&] {
    return core_->ledger().usage().pressure() == MemoryPressure::kNone;
  }));
  // Only as many contents as necessary are evicted, and none in use.
  EXPECT_EQ(core_->contents().stats().entries, 5u);
  EXPECT_EQ(client->Read(1, 1), FloatsOf("bbbb"));
}

TEST_F(WorkerCoreTest, AModelWeighsTheContentsThatItsRunsRead) {
  FakeGraph s;
  const uint32_t x = s.Bound();
  const uint32_t y = s.Bound();
  s.Add(x, y, 600);
  std::unique_ptr<TestClient> client = Open();
  const std::string bytes = FloatBytes(Floats(600, 1));
  client->InstallTransfer(1, 1, bytes);
  client->WaitDecision(1);
  client->SendBytes(1, bytes);
  EXPECT_TRUE(client->WaitCompleted(client->Create(2, bytes.size())));
  client->Define(1, s.get());
  EXPECT_TRUE(client->WaitCompleted(client->Run(1, {1, 2, 3})));
  const v1::WorkerState state = core_->Snapshot();
  ASSERT_EQ(state.graphs_size(), 1);
  EXPECT_EQ(state.graphs(0).content_bytes(), bytes.size());
}

TEST_F(WorkerCoreTest, IdleContentsMakeRoom) {
  const std::string old_bytes(7 << 20, 'o');
  {
    std::unique_ptr<TestClient> client = Open("s1");
    client->InstallTransfer(1, 1, old_bytes);
    client->WaitDecision(1);
    client->SendBytes(1, old_bytes);
    EXPECT_TRUE(client->WaitCompleted(1));
  }
  EXPECT_TRUE(WaitMemory(old_bytes.size()));
  std::unique_ptr<TestClient> a = Open("s2");
  std::unique_ptr<TestClient> b = Open("s3");
  EXPECT_TRUE(a->WaitCompleted(a->Create(1, 7 << 20)));
  EXPECT_TRUE(b->WaitCompleted(b->Create(1, 7 << 20)));
  EXPECT_TRUE(core_->contents().List().empty());
}

TEST_F(WorkerCoreTest, InlineSizedUploadIsNoContent) {
  std::unique_ptr<TestClient> client = Open();
  // Leases of these tests let 1024 bytes go inline.
  uint64_t id = 0;
  for (const size_t size : {1024, 1025}) {
    const std::string bytes(size, 'x');
    for (const bool again : {false, true}) {
      ++id;
      client->InstallTransfer(id, id, bytes);
      const v1::TransferDecision decision = client->WaitDecision(id);
      EXPECT_EQ(decision.already_held(), again && size > 1024) << size;
      if (decision.send()) client->SendBytes(id, bytes);
      EXPECT_EQ(client->Read(id, 1).size(), 1u);
    }
  }
  EXPECT_EQ(core_->Snapshot().contents_size(), 1);
}

}  // namespace
}  // namespace djinn::worker
