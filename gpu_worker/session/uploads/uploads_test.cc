#include "gpu_worker/session/uploads/uploads.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/base/random.h"
#include "common/hash/content_proof.h"
#include "common/transport/stream.h"
#include "gpu_worker/device/fake/fake_device.h"
#include "gpu_worker/session/uploads/upload_rate.h"
#include "gpu_worker/store/content_cache.h"
#include "gpu_worker/store/content_proofs.h"
#include "gpu_worker/store/device_memory.h"
#include "gpu_worker/store/disk_store.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

class UploadsTest : public testing::Test {
 protected:
  static constexpr uint64_t kInlineBytes = 1000;

  UploadsTest() {
    environment_.clock = &clock_;
    environment_.memory = &memory_;
    environment_.contents = &contents_;
    environment_.proofs = &proofs_;
    environment_.uploads = &rate_;
    environment_.contents_changed = [this] { ++changes_; };
  }

  std::unique_ptr<Uploads> Make(const std::string& tenant = "red") {
    return std::make_unique<Uploads>(
        &environment_, tenant, kInlineBytes, &traffic_,
        Uploads::Callbacks{[this] { ++settled_; }, [](absl::Duration) {}});
  }

  static ContentHash HashOf(const std::string& bytes) {
    return HashContent(bytes.data(), bytes.size());
  }
  static v1::Transfer Announce(uint64_t id, const std::string& bytes) {
    v1::Transfer transfer;
    transfer.set_transfer_id(id);
    transfer.set_size_bytes(bytes.size());
    transfer.set_hash_high(HashOf(bytes).high);
    transfer.set_hash_low(HashOf(bytes).low);
    return transfer;
  }
  static absl::Status SendChunk(Uploads* uploads, uint64_t id,
                                const std::string& bytes, size_t chunk) {
    const uint64_t offset = chunk * kBulkChunkBytes;
    const absl::string_view all = bytes;
    const absl::string_view piece = all.substr(offset, kBulkChunkBytes);
    return uploads->ReceiveBulk(id, offset,
                                {piece.substr(0, 10), piece.substr(10)});
  }
  static void Send(Uploads* uploads, uint64_t id, const std::string& bytes) {
    for (size_t i = 0; i * kBulkChunkBytes < bytes.size(); ++i) {
      ASSERT_TRUE(SendChunk(uploads, id, bytes, i).ok());
    }
  }
  // Uploads bytes that have no equal content; returns what was kept.
  std::string Bring(Uploads* uploads, uint64_t id, const std::string& bytes) {
    const Uploads::Found found = uploads->Find(Announce(id, bytes), true);
    EXPECT_FALSE(found.waits);
    EXPECT_EQ(found.held, nullptr);
    EXPECT_TRUE(uploads->Receive().ok());
    Send(uploads, id, bytes);
    EXPECT_TRUE(uploads->settled());
    const auto buffer = uploads->Finish();
    return buffer.ok() ? BytesOf(*buffer) : buffer.status().ToString();
  }
  std::string BytesOf(const std::shared_ptr<Buffer>& buffer) {
    return std::string(device_.HostBytes(buffer)->bytes);
  }
  static bool Violates(const absl::Status& status) {
    return ErrorReason(status) == "PROTOCOL_VIOLATION";
  }

  FakeClock clock_;
  FakeRandomSource random_;
  FakeDevice device_{64 << 20};
  Ledger ledger_{8 << 20};
  DeviceMemory memory_{&device_, &ledger_};
  ContentCache contents_{100, &clock_};
  ContentProofs proofs_{&device_, &random_, 2};
  UploadRate rate_{&clock_};
  SessionEnvironment environment_;
  Traffic traffic_;
  int settled_ = 0;
  int changes_ = 0;
  // Two chunks and a half.
  const std::string bytes_ =
      std::string(5 * kBulkChunkBytes / 2 - 1, 'b') + "e";
};

TEST_F(UploadsTest, UploadedContentIsHeld) {
  const std::unique_ptr<Uploads> uploads = Make();
  EXPECT_TRUE(Bring(uploads.get(), 1, bytes_) == bytes_);
  EXPECT_EQ(changes_, 1);
  EXPECT_EQ(settled_, 1);
  EXPECT_EQ(traffic_.bytes(Traffic::kBulkIn), bytes_.size());
  // No upload is under way that could be settled.
  EXPECT_FALSE(uploads->settled());
  const Uploads::Found found = uploads->Find(Announce(2, bytes_), true);
  EXPECT_FALSE(found.waits);
  ASSERT_NE(found.held, nullptr);
  EXPECT_TRUE(BytesOf(found.held) == bytes_);
  // Another tenant does not have the content.
  EXPECT_EQ(Make("blue")->Find(Announce(1, bytes_), true).held, nullptr);
}

TEST_F(UploadsTest, AnEagerUploadIsKeptAsAContent) {
  const std::unique_ptr<Uploads> uploads = Make();
  const std::shared_ptr<Buffer> buffer = *uploads->Take(bytes_);
  EXPECT_TRUE(BytesOf(buffer) == bytes_);
  EXPECT_EQ(changes_, 1);
  EXPECT_EQ(uploads->Find(Announce(1, bytes_), true).held, buffer);
  // An equal upload takes no more memory.
  EXPECT_EQ(*uploads->Take(bytes_), buffer);
  EXPECT_EQ(ledger_.usage().used, bytes_.size());
  // An upload without room leaves nothing behind.
  EXPECT_EQ(ErrorReason(uploads->Take(std::string(9 << 20, 'x')).status()),
            "DEVICE_MEMORY");
  EXPECT_EQ(ledger_.usage().used, bytes_.size());
}

TEST_F(UploadsTest, BytesThatCouldHaveComeInlineAreNoContent) {
  const std::unique_ptr<Uploads> uploads = Make();
  const std::string few(kInlineBytes, 'f');
  EXPECT_EQ(Bring(uploads.get(), 1, few), few);
  EXPECT_FALSE(uploads->Keeps(few.size()));
  EXPECT_TRUE(uploads->Keeps(few.size() + 1));
  EXPECT_EQ(contents_.stats().entries, 0u);
  EXPECT_EQ(changes_, 0);
}

TEST_F(UploadsTest, ChunksComeInAnyOrder) {
  const std::unique_ptr<Uploads> uploads = Make();
  uploads->Find(Announce(1, bytes_), true);
  ASSERT_TRUE(uploads->Receive().ok());
  for (const size_t chunk : {2, 0, 1}) {
    EXPECT_FALSE(uploads->settled());
    EXPECT_TRUE(uploads->awaited().has_value());
    ASSERT_TRUE(SendChunk(uploads.get(), 1, bytes_, chunk).ok());
  }
  EXPECT_TRUE(uploads->settled());
  EXPECT_FALSE(uploads->awaited().has_value());
  EXPECT_TRUE(BytesOf(*uploads->Finish()) == bytes_);
}

TEST_F(UploadsTest, UnrequestedBytesAreAViolation) {
  const std::unique_ptr<Uploads> uploads = Make();
  EXPECT_TRUE(Violates(SendChunk(uploads.get(), 1, bytes_, 0)));
  EXPECT_TRUE(Violates(uploads->ReceiveProof({})));
  uploads->Find(Announce(1, bytes_), true);
  EXPECT_TRUE(Violates(SendChunk(uploads.get(), 1, bytes_, 0)));
  ASSERT_TRUE(uploads->Receive().ok());
  EXPECT_TRUE(Violates(SendChunk(uploads.get(), 2, bytes_, 0)));
  EXPECT_TRUE(Violates(uploads->ReceiveBulk(1, 7, {"bytes"})));
  EXPECT_TRUE(Violates(uploads->ReceiveBulk(1, 0, {"too few"})));
  EXPECT_TRUE(SendChunk(uploads.get(), 1, bytes_, 0).ok());
  const absl::Status twice = SendChunk(uploads.get(), 1, bytes_, 0);
  EXPECT_TRUE(Violates(twice));
  EXPECT_EQ(twice.message(), "bytes at 0 of transfer 1 twice");
  EXPECT_EQ(traffic_.bytes(Traffic::kBulkIn), kBulkChunkBytes);
}

TEST_F(UploadsTest, AfterAResumeChunksMayComeTwice) {
  const std::unique_ptr<Uploads> uploads = Make();
  uploads->Find(Announce(1, bytes_), true);
  ASSERT_TRUE(uploads->Receive().ok());
  ASSERT_TRUE(SendChunk(uploads.get(), 1, bytes_, 0).ok());
  ASSERT_TRUE(SendChunk(uploads.get(), 1, bytes_, 2).ok());
  v1::WorkerHello hello;
  uploads->OnStream(StreamWay::kLocal, /*resumed=*/true, &hello);
  EXPECT_EQ(hello.transfer().transfer_id(), 1u);
  // All bytes before this position have arrived.
  EXPECT_EQ(hello.transfer().received_bytes(), kBulkChunkBytes);
  Send(uploads.get(), 1, bytes_);
  EXPECT_TRUE(uploads->settled());
  EXPECT_TRUE(SendChunk(uploads.get(), 1, bytes_, 2).ok());
  EXPECT_TRUE(BytesOf(*uploads->Finish()) == bytes_);
  EXPECT_TRUE(SendChunk(uploads.get(), 1, bytes_, 2).ok());
  EXPECT_EQ(traffic_.bytes(Traffic::kBulkIn), bytes_.size());
}

// A program may write to the bytes while they are sent.
TEST_F(UploadsTest, BytesThatAreNotWhatWasAnnouncedAreKeptUnderTheirOwnHash) {
  const std::unique_ptr<Uploads> uploads = Make();
  std::string other = bytes_;
  other.back() = 'x';
  uploads->Find(Announce(1, bytes_), true);
  ASSERT_TRUE(uploads->Receive().ok());
  Send(uploads.get(), 1, other);
  const auto buffer = uploads->Finish();
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  EXPECT_TRUE(BytesOf(*buffer) == other);
  // The announced hash does not find the bytes.
  EXPECT_EQ(contents_.Find("red", HashOf(bytes_), bytes_.size()), nullptr);
  EXPECT_EQ(contents_.Find("red", HashOf(other), other.size()), *buffer);
  // The announced bytes are sent like any others, and are another content.
  EXPECT_TRUE(Bring(uploads.get(), 2, bytes_) == bytes_);
  EXPECT_TRUE(BytesOf(*buffer) == other);
  EXPECT_EQ(contents_.stats().entries, 2u);
}

TEST_F(UploadsTest, WithoutRoomNothingIsUnderWay) {
  const std::unique_ptr<Uploads> uploads = Make();
  v1::Transfer transfer = Announce(1, bytes_);
  transfer.set_size_bytes(uint64_t{1} << 30);
  uploads->Find(transfer, true);
  EXPECT_EQ(uploads->Receive().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(Violates(SendChunk(uploads.get(), 1, bytes_, 0)));
  EXPECT_TRUE(Bring(uploads.get(), 2, bytes_) == bytes_);
}

TEST_F(UploadsTest, OneThatStandsStillIsGivenUp) {
  const std::unique_ptr<Uploads> uploads = Make();
  uploads->Find(Announce(1, bytes_), true);
  ASSERT_TRUE(uploads->Receive().ok());
  clock_.Advance(absl::Seconds(29));
  ASSERT_TRUE(SendChunk(uploads.get(), 1, bytes_, 0).ok());
  clock_.Advance(absl::Seconds(29));
  uploads->CheckDeadline(/*attached=*/true);
  EXPECT_FALSE(uploads->settled());
  clock_.Advance(absl::Seconds(1));
  // Without a stream nothing can arrive.
  uploads->CheckDeadline(/*attached=*/false);
  EXPECT_FALSE(uploads->settled());
  uploads->CheckDeadline(/*attached=*/true);
  EXPECT_TRUE(uploads->settled());
  EXPECT_EQ(settled_, 1);
  const absl::Status failure = uploads->Finish().status();
  EXPECT_EQ(ErrorReason(failure), "TRANSFER_TIMEOUT");
  EXPECT_EQ(failure.message(),
            "transfer 1 of 655360 bytes stood still for 30s with all before "
            "262144 received");
  // The chunk was under way when the upload ended.
  EXPECT_TRUE(SendChunk(uploads.get(), 1, bytes_, 1).ok());
  EXPECT_EQ(ledger_.usage().used, 0u);
}

TEST_F(UploadsTest, AnotherTenantsBytesAreProved) {
  contents_.SetSharing({"red", "blue"});
  Bring(Make("red").get(), 1, bytes_);
  const std::unique_ptr<Uploads> uploads = Make("blue");
  v1::Transfer transfer = Announce(1, bytes_);
  transfer.set_provable(true);
  const Uploads::Found asked = uploads->Find(transfer, true);
  EXPECT_TRUE(asked.waits);
  v1::TransferProof proof;
  proof.set_transfer_id(1);
  proof.set_mac("short");
  EXPECT_TRUE(Violates(uploads->ReceiveProof(proof)));
  proof.set_mac(ProveContent(asked.question->prove().key(), bytes_));
  EXPECT_TRUE(uploads->ReceiveProof(proof).ok());
  EXPECT_FALSE(uploads->settled());
  while (proofs_.Work()) {
  }
  EXPECT_TRUE(uploads->settled());
  EXPECT_NE(uploads->GoOn().held, nullptr);
  EXPECT_EQ(proofs_.stats().proven, 1u);
  // A repeated proof changes nothing.
  EXPECT_TRUE(uploads->ReceiveProof(proof).ok());
}

TEST_F(UploadsTest, WithoutAProofInTimeTheBytesHaveToCome) {
  contents_.SetSharing({"red", "blue"});
  Bring(Make("red").get(), 1, bytes_);
  const std::unique_ptr<Uploads> uploads = Make("blue");
  v1::Transfer transfer = Announce(1, bytes_);
  transfer.set_provable(true);
  EXPECT_TRUE(uploads->Find(transfer, true).waits);
  clock_.Advance(absl::Seconds(31));
  uploads->CheckDeadline(/*attached=*/true);
  EXPECT_TRUE(uploads->settled());
  const Uploads::Found found = uploads->GoOn();
  EXPECT_FALSE(found.waits);
  EXPECT_EQ(found.held, nullptr);
}

TEST_F(UploadsTest, ContentThatDoesNotFitNeedsNoProof) {
  contents_.SetSharing({"red", "blue"});
  const std::unique_ptr<Uploads> uploads = Make();
  v1::Transfer transfer = Announce(1, bytes_);
  transfer.set_provable(true);
  EXPECT_FALSE(uploads->Find(transfer, /*fits=*/false).waits);
  EXPECT_EQ(proofs_.stats().issued, 0u);
}

TEST_F(UploadsTest, TheDiskMayHaveWhatMemoryHasNot) {
  const std::string folder = testing::TempDir() + "/uploads_contents";
  std::filesystem::remove_all(folder);
  const std::unique_ptr<DiskStore> store =
      *DiskStore::Open({.directory = folder, .limit_bytes = 8 << 20}, &clock_);
  store->Bind(&device_, &contents_);
  environment_.store = store.get();
  {
    const std::unique_ptr<Uploads> uploads = Make();
    uploads->Find(Announce(1, bytes_), true);
    ASSERT_TRUE(uploads->Receive().ok());
    Send(uploads.get(), 1, bytes_);
    const auto used = uploads->Finish();
    ASSERT_TRUE(used.ok());
    clock_.Advance(absl::Seconds(10));
    EXPECT_TRUE(store->WriteOne());
  }
  contents_.EvictIdle(bytes_.size());
  const std::unique_ptr<Uploads> uploads = Make();
  const Uploads::Found asked = uploads->Find(Announce(1, bytes_), true);
  EXPECT_TRUE(asked.waits);
  EXPECT_FALSE(asked.question.has_value());
  EXPECT_TRUE(uploads->awaited()->from_disk);
  EXPECT_TRUE(store->ReadOne());
  EXPECT_TRUE(uploads->settled());
  const Uploads::Found found = uploads->GoOn();
  ASSERT_NE(found.held, nullptr);
  EXPECT_TRUE(BytesOf(found.held) == bytes_);
  store->Stop();
}

// A store in another process, whose answers the test decides.
class FarStore : public ContentStore {
 public:
  struct Load : ContentLoad {
    bool settled() const override { return is_settled; }
    bool ok() const override { return buffer != nullptr; }
    void GiveUp() override { is_settled = true; }
    std::shared_ptr<Buffer> Take() override { return std::move(buffer); }
    std::shared_ptr<ContentChallenge> challenge() override { return asked; }

    bool is_settled = false;
    std::shared_ptr<Buffer> buffer;
    std::shared_ptr<ContentChallenge> asked;
  };
  void Bind(Device*, ContentCache*) override {}
  void Start() override {}
  void Stop() override {}
  void Keep(const std::string&, const ContentHash&, uint64_t, bool) override {
    ++kept;
  }
  bool MayHave(const std::string&, const ContentHash&,
               uint64_t) const override {
    return true;
  }
  std::shared_ptr<ContentLoad> Load(ContentRequest request) override {
    last_request = std::move(request);
    return load;
  }

  std::shared_ptr<struct Load> load = std::make_shared<struct Load>();
  ContentRequest last_request;
  int kept = 0;
};

TEST_F(UploadsTest, AnotherProcessMayLendTheContent) {
  FarStore store;
  environment_.store = &store;
  const std::unique_ptr<Uploads> uploads = Make();
  v1::Transfer transfer = Announce(1, bytes_);
  transfer.set_provable(true);
  EXPECT_TRUE(uploads->Find(transfer, true).waits);
  EXPECT_EQ(store.last_request.tenant, "red");
  EXPECT_EQ(store.last_request.buffer->size_bytes(), bytes_.size());
  EXPECT_TRUE(store.last_request.provable);
  store.last_request = {};
  store.load->buffer = *device_.Allocate(bytes_.size());
  store.load->is_settled = true;
  const std::shared_ptr<Buffer> lent = store.load->buffer;
  EXPECT_TRUE(device_.Write(lent.get(), 0, bytes_).ok());
  const Uploads::Found found = uploads->GoOn();
  EXPECT_EQ(found.held.get(), lent.get());
  // It is a content that counts once.
  EXPECT_EQ(ledger_.usage().used, bytes_.size());
  EXPECT_EQ(uploads->Find(Announce(2, bytes_), true).held, found.held);
}

TEST_F(UploadsTest, AnotherProcessMayAskForAProof) {
  FarStore store;
  environment_.store = &store;
  const std::unique_ptr<Uploads> uploads = Make();
  const std::shared_ptr<Buffer> lent = *device_.Allocate(bytes_.size());
  EXPECT_TRUE(device_.Write(lent.get(), 0, bytes_).ok());
  for (const bool proven : {false, true}) {
    EXPECT_TRUE(uploads->Find(Announce(1, bytes_), true).waits);
    store.last_request = {};
    store.load->is_settled = true;
    store.load->asked = proofs_.Issue(
        "red", bytes_.size(), {lent}, [] {}, [](absl::Duration) {});
    const Uploads::Found asked = uploads->GoOn();
    EXPECT_TRUE(asked.waits);
    ASSERT_TRUE(asked.question.has_value());
    // Room stays for what may come.
    EXPECT_EQ(ledger_.usage().used, bytes_.size());
    v1::TransferProof proof;
    proof.set_transfer_id(1);
    proof.set_mac(ProveContent(asked.question->prove().key(),
                               proven ? bytes_ : "others"));
    EXPECT_TRUE(uploads->ReceiveProof(proof).ok());
    while (proofs_.Work()) {
    }
    EXPECT_TRUE(uploads->settled());
    store.load->asked = nullptr;
    const Uploads::Found found = uploads->GoOn();
    EXPECT_FALSE(found.waits);
    EXPECT_EQ(found.held.get(), proven ? lent.get() : nullptr);
    EXPECT_EQ(contents_.stats().hits, proven ? 1u : 0u);
    EXPECT_EQ(ledger_.usage().used, proven ? bytes_.size() : 0);
  }
}

TEST_F(UploadsTest, ForgottenUploadIsNotAwaited) {
  const std::unique_ptr<Uploads> uploads = Make();
  uploads->Find(Announce(1, bytes_), true);
  ASSERT_TRUE(uploads->Receive().ok());
  ASSERT_TRUE(SendChunk(uploads.get(), 1, bytes_, 0).ok());
  uploads->Forget();
  EXPECT_FALSE(uploads->awaited().has_value());
  EXPECT_FALSE(uploads->settled());
  EXPECT_EQ(ledger_.usage().used, 0u);
}

TEST_F(UploadsTest, OnlyWhatCameOverTheNetworkTellsOfTheLink) {
  const std::string large(2 * UploadRate::kMinBytes, 'l');
  const std::unique_ptr<Uploads> uploads = Make();
  v1::WorkerHello hello;
  for (const StreamWay way : {StreamWay::kLocal, StreamWay::kNetwork}) {
    uploads->OnStream(way, /*resumed=*/false, &hello);
    EXPECT_EQ(rate_.BytesPerSecond(), 0u);
    const uint64_t id = way == StreamWay::kLocal ? 1 : 2;
    uploads->Find(Announce(id, large), false);
    ASSERT_TRUE(uploads->Receive().ok());
    for (size_t i = 0; i * kBulkChunkBytes < large.size(); ++i) {
      clock_.Advance(absl::Milliseconds(1));
      ASSERT_TRUE(SendChunk(uploads.get(), id, large, i).ok());
    }
    uploads->Forget();
  }
  EXPECT_GT(rate_.BytesPerSecond(), 0u);
}

}  // namespace
}  // namespace djinn::worker
