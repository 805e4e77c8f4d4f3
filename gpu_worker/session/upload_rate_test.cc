// Tests the rate of clients' uploads that the coordinator learns.
#include "gpu_worker/session/uploads/upload_rate.h"

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/metrics/exposition.h"
#include "gpu_worker/testing/core_fixture.h"

namespace djinn::worker {
namespace {

constexpr absl::Duration kPerChunk = absl::Milliseconds(100);

class UploadRateTest : public WorkerCoreTest {
 protected:
  UploadRateTest() { way_ = StreamWay::kNetwork; }

  uint64_t Rate() { return core_->Snapshot().client_bytes_per_second(); }
  static std::string Bytes(size_t chunks, char fill = 'a') {
    return std::string(chunks * kBulkChunkBytes, fill);
  }
  static void Announce(TestClient* client, const std::string& bytes) {
    client->InstallTransfer(1, 1, bytes);
    EXPECT_TRUE(client->WaitDecision(1).send());
  }
  // Returns when the worker has the chunk.
  void SendChunk(TestClient* client, const std::string& bytes, size_t chunk) {
    client->SendBytes(1, bytes, chunk * kBulkChunkBytes, kBulkChunkBytes);
    came_ += kBulkChunkBytes;
    EXPECT_TRUE(WaitUntil([this] {
      return Metrics().find(absl::StrCat(
                 "djinn_transfer_bytes_total{path=\"client_to_worker\","
                 "kind=\"bulk\"} ",
                 came_, "\n")) != std::string::npos;
    }));
  }
  void Upload(TestClient* client, const std::string& bytes) {
    Announce(client, bytes);
    for (size_t i = 0; i * kBulkChunkBytes < bytes.size(); ++i) {
      if (i > 0) clock_.Advance(kPerChunk);
      SendChunk(client, bytes, i);
    }
    EXPECT_TRUE(client->WaitCompleted(1));
  }

  uint64_t came_ = 0;
};

TEST_F(UploadRateTest, AnUploadSaysWhatTheLinkMoves) {
  const auto client = Open();
  EXPECT_EQ(Rate(), 0u);
  Announce(client.get(), Bytes(5));
  // The time before the first chunk does not count for the link.
  clock_.Advance(absl::Seconds(3));
  for (size_t i = 0; i < 5; ++i) {
    if (i > 0) clock_.Advance(kPerChunk);
    SendChunk(client.get(), Bytes(5), i);
  }
  EXPECT_TRUE(client->WaitCompleted(1));
  EXPECT_EQ(Rate(), kBulkChunkBytes * 10);
  clock_.Advance(DecayedRate::kKept + absl::Seconds(1));
  EXPECT_EQ(Rate(), 0u);
}

TEST_F(UploadRateTest, UploadsAtTheSameTimeShareTheLink) {
  const auto a = Open("s1");
  const auto b = Open("s2", "t2");
  Announce(a.get(), Bytes(4));
  Announce(b.get(), Bytes(4));
  SendChunk(a.get(), Bytes(4), 0);
  SendChunk(b.get(), Bytes(4), 0);
  for (size_t i = 1; i < 4; ++i) {
    clock_.Advance(kPerChunk);
    SendChunk(b.get(), Bytes(4), i);
    SendChunk(a.get(), Bytes(4), i);
  }
  EXPECT_TRUE(a->WaitCompleted(1));
  EXPECT_TRUE(b->WaitCompleted(1));
  // Two chunks arrive each time. One upload sees six chunks of the other and
  // its own after its first; the other sees seven, except its last.
  EXPECT_GT(Rate(), 17 * kBulkChunkBytes);
  EXPECT_LT(Rate(), 25 * kBulkChunkBytes);
}

TEST_F(UploadRateTest, SmallOrLocalUploadIsNotMeasured) {
  const auto client = Open("small");
  Upload(client.get(), Bytes(3));
  EXPECT_EQ(Rate(), 0u);
  way_ = StreamWay::kLocal;
  const auto local = Open("local");
  Upload(local.get(), Bytes(5, 'b'));
  EXPECT_EQ(Rate(), 0u);
}

TEST_F(UploadRateTest, AnUploadThatWasCutSaysNothing) {
  const auto client = Open();
  const std::string bytes = Bytes(5);
  Announce(client.get(), bytes);
  SendChunk(client.get(), bytes, 0);
  Break(client.get());
  clock_.Advance(absl::Seconds(5));
  Resume(client.get());
  for (size_t i = 1; i < 5; ++i) SendChunk(client.get(), bytes, i);
  EXPECT_TRUE(client->WaitCompleted(1));
  EXPECT_EQ(Rate(), 0u);
}

}  // namespace
}  // namespace djinn::worker
