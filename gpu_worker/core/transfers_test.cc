// Uploads, contents and values read.
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gpu_worker/core/core_fixture.h"

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
  // A view of two bytes into the last chunk, then the whole on Bulk.
  srg::TensorView view;
  view.data_type = srg::DataType::kUint8;
  view.sizes = {static_cast<int64_t>(bytes.size())};
  view.strides = {1};
  const v1::ReadReply reply = client->WaitRead(client->SendRead(1, view, 77));
  EXPECT_EQ(reply.bulk_bytes(), bytes.size());
  EXPECT_EQ(client->WaitBulk(77, bytes.size()), bytes);
  // Another session of the tenant does not send them again.
  std::unique_ptr<TestClient> second = Open("s2", "t1");
  second->InstallTransfer(1, 1, bytes);
  EXPECT_TRUE(second->WaitDecision(1).already_held());
  // Another tenant does.
  std::unique_ptr<TestClient> stranger = Open("s3", "t2");
  stranger->InstallTransfer(1, 1, bytes);
  EXPECT_TRUE(stranger->WaitDecision(1).send());
}

TEST_F(WorkerCoreTest, AWriterOfSharedContentsChangesItsOwnCopyOnly) {
  FakeStructure s;
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

TEST_F(WorkerCoreTest, BytesThatDoNotMatchTheirHashPoison) {
  std::unique_ptr<TestClient> client = Open();
  const std::string bytes(2000, 'x');
  client->InstallTransfer(1, 1, bytes, ContentHash{1, 2});
  client->WaitDecision(1);
  client->SendBytes(1, bytes);
  EXPECT_EQ(client->ReadError(1).reason(), "CONTENT_MISMATCH");
  EXPECT_TRUE(core_->contents().List().empty());
  EXPECT_TRUE(WaitMemory(0));
}

TEST_F(WorkerCoreTest, ATransferThatStandsStillPoisonsAndLateBytesAreIgnored) {
  std::unique_ptr<TestClient> client = Open();
  const std::string bytes(kBulkChunkBytes + 2000, 'x');
  client->InstallTransfer(1, 1, bytes);
  client->WaitDecision(1);
  client->SendBytes(1, bytes, 0, kBulkChunkBytes);
  // Whenever the piece arrives, nothing follows it for long enough.
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
  // What fits is read, and nothing of it stays behind.
  const size_t bytes = size_t{1} << 20;
  expanded.sizes = {static_cast<int64_t>(bytes / sizeof(float))};
  EXPECT_EQ(client->WaitRead(client->SendRead(1, expanded, 2)).bulk_bytes(),
            bytes);
  EXPECT_EQ(client->WaitBulk(2, bytes),
            FloatBytes(Floats(bytes / sizeof(float), 7)));
  EXPECT_TRUE(WaitMemory(before));
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

}  // namespace
}  // namespace djinn::worker
