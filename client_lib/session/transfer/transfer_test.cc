// Tests uploads and reads of a session, with fake workers.
#include <memory>
#include <string>
#include <thread>

#include "client_lib/session/testing/calls.h"
#include "client_lib/session/testing/fake_cluster.h"
#include "client_lib/session/testing/program.h"
#include "common/base/error.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

class TransferTest : public DeviceTest {
 protected:
  ~TransferTest() override {
    if (session_ != nullptr) {
      EXPECT_TRUE(session_->Close(absl::Seconds(10)).ok());
    }
  }

  absl::Status Upload(const StoragePtr& storage, const std::string& bytes) {
    auto owner = std::make_shared<std::string>(bytes);
    const std::weak_ptr<std::string> watch = owner;
    const absl::string_view view = *owner;
    const absl::Status status =
        device_->Upload(1, storage.get(), {view, std::move(owner)});
    // The source is released whatever the outcome.
    EXPECT_TRUE(watch.expired());
    return status;
  }
};

TEST_F(TransferTest, SmallValuesTravelInsideMessages) {
  const StoragePtr storage = device_->NewStorage(1000);
  ASSERT_TRUE(Upload(storage, Pattern(1000)).ok());
  EXPECT_EQ(*ReadAll(storage), Pattern(1000));
  EXPECT_EQ(session_->statistics().uploads_inline, 1u);
}

TEST_F(TransferTest, SmallUploadsAndSeedsAskForNoLease) {
  const StoragePtr storage = device_->NewStorage(4),
                   generator = device_->NewStorage(0);
  ASSERT_TRUE(Upload(storage, "abcd").ok());
  ASSERT_TRUE(device_->Seed(1, generator.get(), 7).ok());
  EXPECT_TRUE(cluster_.coordinator().lease_requests().empty());
  // The message of the read carries the upload and the seed along.
  EXPECT_EQ(*ReadAll(storage), "abcd");
}

TEST_F(TransferTest, TheFirstLargeUploadIsNamedInTheLeaseRequest) {
  const StoragePtr small = device_->NewStorage(4),
                   large = device_->NewStorage(1 << 20);
  ASSERT_TRUE(Upload(small, "abcd").ok());
  ASSERT_TRUE(Upload(large, Pattern(1 << 20)).ok());
  const auto requests = cluster_.coordinator().lease_requests();
  ASSERT_EQ(requests.size(), 1u);
  ASSERT_EQ(requests[0].contents_size(), 1);
  EXPECT_EQ(requests[0].contents(0).size_bytes(), 1u << 20);
}

TEST_F(TransferTest, AnUploadTooLargeForAnyWorkerIsRefusedByTheWorker) {
  cluster_.coordinator().RefuseContents(MakeError(
      absl::StatusCode::kFailedPrecondition, "TOO_LARGE", "too large"));
  cluster_.worker().Set(&FakeScript::transfers, FakeScript::Transfers::kRefuse);
  const StoragePtr large = device_->NewStorage(1 << 20);
  EXPECT_EQ(ErrorReason(Upload(large, Pattern(1 << 20))), "SESSION_MEMORY");
  const StoragePtr small = device_->NewStorage(4);
  ASSERT_TRUE(Upload(small, "abcd").ok());
  EXPECT_EQ(*ReadAll(small), "abcd");
}

TEST_F(TransferTest, ALargeUploadInlineAfterAllReturns) {
  // The source is larger than what is copied before the limits are known, and
  // smaller than the limits allow to copy.
  const StoragePtr storage = device_->NewStorage(6000);
  ASSERT_TRUE(Upload(storage, Pattern(6000)).ok());
  EXPECT_EQ(*ReadAll(storage), Pattern(6000));
  EXPECT_EQ(session_->statistics().uploads_inline, 1u);
}

TEST_F(TransferTest, LargeValuesTravelInChunksBothWays) {
  const size_t size = 2 * kBulkChunkBytes + 12345;
  const StoragePtr storage = device_->NewStorage(size);
  ASSERT_TRUE(Upload(storage, Pattern(size)).ok());
  EXPECT_EQ(*ReadAll(storage), Pattern(size));
  const Statistics statistics = session_->statistics();
  EXPECT_EQ(statistics.uploads_sent, 1u);
  EXPECT_GE(statistics.bytes_up, size);
  EXPECT_GE(statistics.bytes_down, size);
}

TEST_F(TransferTest, HeldContentMovesNoBytes) {
  cluster_.worker().Set(&FakeScript::transfers, FakeScript::Transfers::kHeld);
  const StoragePtr storage = device_->NewStorage(1 << 20);
  ASSERT_TRUE(Upload(storage, Pattern(1 << 20)).ok());
  EXPECT_EQ(session_->statistics().uploads_already_held, 1u);
  EXPECT_LT(session_->statistics().bytes_up, 1000u);
}

TEST_F(TransferTest, ProvenContentMovesNoBytes) {
  cluster_.worker().Set(&FakeScript::ask_for_proofs, true);
  cluster_.worker().Set(&FakeScript::transfers, FakeScript::Transfers::kHeld);
  const StoragePtr storage = device_->NewStorage(1 << 20);
  ASSERT_TRUE(Upload(storage, Pattern(1 << 20)).ok());
  EXPECT_EQ(session_->statistics().uploads_already_held, 1u);
  EXPECT_LT(session_->statistics().bytes_up, 1000u);
}

TEST_F(TransferTest, ContentProvenInVainIsSent) {
  // The worker compares the proof with the bytes.
  cluster_.worker().Set(&FakeScript::ask_for_proofs, true);
  const size_t size = kBulkChunkBytes + 77;
  const StoragePtr storage = device_->NewStorage(size);
  ASSERT_TRUE(Upload(storage, Pattern(size)).ok());
  EXPECT_EQ(*ReadAll(storage), Pattern(size));
  EXPECT_EQ(session_->statistics().uploads_sent, 1u);
}

TEST_F(TransferTest, ContentProvenMayBeRefused) {
  cluster_.worker().Set(&FakeScript::ask_for_proofs, true);
  cluster_.worker().Set(&FakeScript::transfers, FakeScript::Transfers::kRefuse);
  const StoragePtr storage = device_->NewStorage(1 << 20);
  EXPECT_EQ(ErrorReason(Upload(storage, Pattern(1 << 20))), "SESSION_MEMORY");
}

TEST_F(TransferTest, ARefusedUploadSaysWhy) {
  cluster_.worker().Set(&FakeScript::transfers, FakeScript::Transfers::kRefuse);
  const StoragePtr storage = device_->NewStorage(1 << 20);
  const absl::Status status = Upload(storage, Pattern(1 << 20));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ErrorReason(status), "SESSION_MEMORY");
  // The order of messages continues.
  cluster_.worker().Set(&FakeScript::transfers, FakeScript::Transfers::kSend);
  EXPECT_TRUE(Upload(storage, Pattern(1 << 20)).ok());
  EXPECT_EQ(*ReadAll(storage), Pattern(1 << 20));
}

TEST_F(TransferTest, ARefusedUploadIsTriedAgainOnceEverythingIsSealed) {
  cluster_.worker().Set(&FakeScript::transfers, FakeScript::Transfers::kRefuse);
  const StoragePtr storage = device_->NewStorage(1 << 20);
  const StoragePtr other = device_->NewStorage(4);
  Call call = MakeCall(0, {{other, kWrites}});
  ASSERT_TRUE(device_->Record(2, &call).ok());
  EXPECT_FALSE(Upload(storage, Pattern(1 << 20)).ok());
  std::string order;
  for (const v1::Ordered& message : cluster_.worker().seen().received) {
    if (message.has_run()) order += 'r';
    if (message.has_install()) order += 'i';
  }
  EXPECT_EQ(order, "iri");
}

TEST_F(TransferTest, AReadOfAViewMovesOnlyItsElements) {
  const StoragePtr storage = device_->NewStorage(100);
  ASSERT_TRUE(Upload(storage, Pattern(100)).ok());
  srg::TensorView view;
  view.data_type = srg::DataType::kUint8;
  view.sizes = {3, 2};
  view.strides = {1, 10};
  view.storage_offset = 5;
  std::string value(6, '?');
  ASSERT_TRUE(device_->Read(1, storage.get(), view, value.data(), 6).ok());
  const std::string all = Pattern(100);
  EXPECT_EQ(value,
            (std::string{all[5], all[15], all[6], all[16], all[7], all[17]}));
  EXPECT_EQ(ErrorReason(device_->Read(1, storage.get(), view, value.data(), 5)),
            "SIZE_MISMATCH");
}

TEST_F(TransferTest, AnEmptyTensorReadsAsZeros) {
  const StoragePtr storage = device_->NewStorage(8);
  EXPECT_EQ(*ReadAll(storage), std::string(8, '\0'));
}

TEST_F(TransferTest, AnUploadSealsWhoNamesTheStorage) {
  const StoragePtr used = device_->NewStorage(4),
                   fresh = device_->NewStorage(4);
  ASSERT_TRUE(Upload(used, "abcd").ok());
  Call call = MakeCall(0, {{used, kReads}});
  ASSERT_TRUE(device_->Record(1, &call).ok());
  ASSERT_TRUE(Upload(fresh, "efgh").ok());
  ASSERT_TRUE(Upload(used, "ijkl").ok());
  EXPECT_EQ(*ReadAll(used), "ijkl");
  std::vector<std::string> order;
  for (const v1::Ordered& message : cluster_.worker().seen().received) {
    if (message.has_run()) order.push_back("run");
    if (message.has_install())
      order.push_back(message.install().inline_value());
  }
  EXPECT_EQ(order, (std::vector<std::string>{"abcd", "efgh", "run", "ijkl"}));
}

TEST_F(TransferTest, AReadWaitsForOtherLanesWriters) {
  const StoragePtr storage = device_->NewStorage(4);
  Call call = MakeCall(0, {{storage, kOverwrites}});
  ASSERT_TRUE(device_->Record(2, &call).ok());
  const std::string value = *ReadAll(storage);
  EXPECT_EQ(value, std::string(4, static_cast<char>(2)));  // the run's sequence
}

TEST_F(TransferTest, AResizeKeepsThePrefix) {
  const StoragePtr storage = device_->NewStorage(4);
  ASSERT_TRUE(Upload(storage, "abcd").ok());
  ASSERT_TRUE(device_->Resize(1, storage.get(), 6).ok());
  EXPECT_EQ(*ReadAll(storage), std::string("abcd\0\0", 6));
}

TEST_F(TransferTest, ResizeBeforeCreationNeedsNoMessage) {
  const StoragePtr storage = device_->NewStorage(0);
  ASSERT_TRUE(device_->Resize(1, storage.get(), 6).ok());
  EXPECT_EQ(*ReadAll(storage), std::string(6, '\0'));
  EXPECT_EQ(cluster_.worker().seen().received.size(), 2u);
}

TEST_F(TransferTest, PoisonFailsReadsEveryTimeAndAnUploadClearsIt) {
  const StoragePtr bad = device_->NewStorage(4), good = device_->NewStorage(4);
  ASSERT_TRUE(Upload(good, "good").ok());
  cluster_.worker().Set(&FakeScript::fail_next_run, 0xbad);
  Call call = MakeCall(0, {{bad, kOverwrites}});
  ASSERT_TRUE(device_->Record(1, &call).ok());
  for (int i = 0; i < 2; ++i) {
    const absl::Status status = ReadAll(bad).status();
    EXPECT_EQ(ErrorMetadataValue(status, "error_id"), "bad");
  }
  EXPECT_EQ(*ReadAll(good), "good");
  EXPECT_EQ(session_->RootErrors().size(), 1u);
  EXPECT_EQ(session_->statistics().root_errors, 1u);
  ASSERT_TRUE(Upload(bad, "fine").ok());
  EXPECT_EQ(*ReadAll(bad), "fine");
}

TEST(UploadTest, BytesTheTransportKeepsAreATimeOut) {
  FakeClock clock;
  FakeCluster cluster;
  const auto [session, device] =
      cluster.OpenDevice(OptionsWith(&clock, absl::Seconds(5)));
  ASSERT_TRUE(device->Placement().ok());
  cluster.worker().Set(&FakeScript::hold_bulk, true);
  const StoragePtr storage = device->NewStorage(1 << 16);
  const auto owner = std::make_shared<std::string>(Pattern(1 << 16));
  WhileTimePasses(&clock, [&] {
    EXPECT_EQ(ErrorReason(device->Upload(1, storage.get(), {*owner, owner})),
              "OPERATION_TIMEOUT");
  });
  EXPECT_EQ(session->statistics().uploads_sent, 0u);
  cluster.worker().Set(&FakeScript::hold_bulk, false);
}

TEST(UploadTest, ASlowUploadThatMovesIsNotTimedOut) {
  FakeCluster cluster;
  SessionOptions options;
  options.operation_timeout = absl::Milliseconds(400);
  const auto [session, device] = cluster.OpenDevice(options);
  cluster.worker().Set(&FakeScript::bulk_delay, absl::Milliseconds(100));
  const std::string bytes = Pattern(6 * kBulkChunkBytes);
  const auto owner = std::make_shared<std::string>(bytes);
  const StoragePtr storage = device->NewStorage(bytes.size());
  EXPECT_TRUE(device->Upload(1, storage.get(), {*owner, owner}).ok());
}

TEST(UploadTest, APendingFreeMakesRoom) {
  v1::SessionLimits limits = FakeWorker::DefaultLimits();
  limits.set_memory_bytes(3 << 20);
  FakeCluster cluster(limits);
  const auto [session, device] = cluster.OpenDevice();
  const std::string bytes = Pattern(2 << 20);
  StoragePtr first = device->NewStorage(bytes.size());
  ASSERT_TRUE(device->Upload(1, first.get(), {bytes, nullptr}).ok());
  // An unsent call still names the storage.
  Call call = MakeCall(1, {{first, kReads}});
  ASSERT_TRUE(device->Record(2, &call).ok());
  Drop(std::move(first));
  const StoragePtr second = device->NewStorage(bytes.size());
  EXPECT_TRUE(device->Upload(1, second.get(), {bytes, nullptr}).ok());
}

TEST(UploadTest, UploadThatExceedsTheLimitIsRefusedAtTheCall) {
  v1::SessionLimits limits = FakeWorker::DefaultLimits();
  limits.set_memory_bytes(3 << 20);
  FakeCluster cluster(limits);
  const auto [session, device] = cluster.OpenDevice();
  const std::string bytes = Pattern(6 << 20);
  StoragePtr storage = device->NewStorage(bytes.size());
  const absl::Status status =
      device->Upload(1, storage.get(), {bytes, nullptr});
  EXPECT_EQ(ErrorReason(status), "SESSION_MEMORY");
  for (const char* number : {"3145728", "6291456", " 0"}) {
    EXPECT_NE(status.message().find(number), std::string::npos) << status;
  }
  Drop(std::move(storage));
  EXPECT_TRUE(session->Close(absl::Seconds(10)).ok());
  EXPECT_TRUE(cluster.worker().live_storages().empty());
}

TEST_F(TransferTest, UploadsFromManyThreadsKeepApart) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([this, t] {
      const std::string bytes(1 << 18, static_cast<char>('a' + t));
      for (int i = 0; i < 5; ++i) {
        const StoragePtr storage = device_->NewStorage(bytes.size());
        ASSERT_TRUE(device_->Upload(t, storage.get(), {bytes, nullptr}).ok());
        EXPECT_EQ(*ReadAll(storage), bytes);
        device_->MarkDead(storage.get());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace djinn
