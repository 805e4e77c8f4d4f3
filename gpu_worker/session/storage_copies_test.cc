// Tests copies of storages within a session (v1::StorageCopy).
#include <memory>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "gpu_worker/testing/core_fixture.h"

namespace djinn::worker {
namespace {

using StorageCopiesTest = WorkerCoreTest;

TEST_F(StorageCopiesTest, ACopySharesMemoryUntilOneOfTheTwoIsWritten) {
  const std::unique_ptr<TestClient> client = Open();
  const std::string bytes = FloatBytes({1, 2});
  client->InstallInline(1, bytes);
  client->InstallCopy(2, 1);
  EXPECT_EQ(client->Read(2, 2), (Floats{1, 2}));
  EXPECT_EQ(core_->ledger().usage().used, bytes.size());
  client->Define(1, Fill());
  client->Run(1, {1}, {7});
  EXPECT_EQ(client->Read(1, 2), (Floats{7, 7}));
  EXPECT_EQ(client->Read(2, 2), (Floats{1, 2}));
  EXPECT_EQ(core_->ledger().usage().used, 2 * bytes.size());
  // The copy outlives its source.
  client->InstallCopy(3, 2);
  client->Free({1, 2});
  client->Run(1, {3}, {5});
  EXPECT_EQ(client->Read(3, 2), (Floats{5, 5}));
  EXPECT_EQ(core_->ledger().usage().used, bytes.size());
}

TEST_F(StorageCopiesTest, ACopyReplacesWhatTheStorageHad) {
  const std::unique_ptr<TestClient> client = Open();
  client->InstallInline(1, FloatBytes({1, 2}));
  client->InstallInline(2, FloatBytes({3, 4, 5}));
  client->InstallCopy(2, 1);
  EXPECT_EQ(client->Read(2, 2), (Floats{1, 2}));
  EXPECT_EQ(core_->ledger().usage().used, 2 * sizeof(float));
}

TEST_F(StorageCopiesTest, ACopyOfWhatWasNeverWrittenIsZero) {
  const std::unique_ptr<TestClient> client = Open();
  client->Create(1, 8);
  client->InstallCopy(2, 1);
  EXPECT_EQ(client->Read(2, 2), (Floats{0, 0}));
}

TEST_F(StorageCopiesTest, ACopyOfAPoisonedStorageHasTheSameError) {
  const std::unique_ptr<TestClient> client = Open();
  client->InstallInline(1, FloatBytes({1, 2}));
  device_.SetExecuteHook([](const std::string&) {
    return absl::InvalidArgumentError("no such value");
  });
  client->Define(1, Fill());
  client->Run(1, {1}, {7});
  client->InstallCopy(2, 1);
  const v1::ErrorDetail error = client->ReadError(2);
  EXPECT_EQ(error.error_id(), client->ReadError(1).error_id());
  EXPECT_NE(error.message().find("no such value"), std::string::npos);
}

TEST_F(StorageCopiesTest, ACopyCountsOnceItHasBytesOfItsOwn) {
  const std::unique_ptr<TestClient> client = Open();
  const auto counted = [&] {
    client->Read(2, 1);
    return core_->Snapshot().sessions(0).storage_bytes();
  };
  client->Define(1, Fill());
  client->Create(1, 3 << 20);
  client->InstallCopy(2, 1);
  EXPECT_EQ(counted(), 3u << 20);
  client->Run(1, {1}, {7});
  EXPECT_EQ(counted(), 6u << 20);
  // Only the copy is left.
  client->Free({1});
  EXPECT_EQ(counted(), 3u << 20);
}

TEST_F(StorageCopiesTest, ACopyWithoutRoomForBytesOfItsOwnLosesThem) {
  const std::unique_ptr<TestClient> client = Open();
  client->Define(1, Fill());
  client->Create(1, 5 << 20);
  client->InstallCopy(2, 1);
  client->Run(1, {1}, {7});
  EXPECT_EQ(client->Read(1, 1), (Floats{7}));
  EXPECT_EQ(client->ReadError(2).reason(), "COPY_GIVEN_UP");
}

TEST_F(StorageCopiesTest, CopiesGiveTheirBytesUpToOthersTheOldestFirst) {
  const std::unique_ptr<TestClient> client = Open();
  client->Define(1, Fill());
  // The session may have 8 MiB.
  for (const uint64_t source : {1, 3}) {
    client->Create(source, 2 << 20);
    client->InstallCopy(source + 1, source);
  }
  client->Free({1, 3});
  client->Create(5, 5 << 20);
  EXPECT_EQ(client->Read(5, 1), (Floats{0}));
  EXPECT_EQ(client->ReadError(2).reason(), "COPY_GIVEN_UP");
  EXPECT_EQ(client->Read(4, 1), (Floats{0}));
  // A copy is not given up in vain.
  client->Create(6, 4 << 20);
  EXPECT_EQ(client->ReadError(6).reason(), "SESSION_MEMORY");
  EXPECT_EQ(client->Read(4, 1), (Floats{0}));
  EXPECT_EQ(client->Read(5, 1), (Floats{0}));
}

TEST_F(StorageCopiesTest, CopiesOfWhatIsNotThereAreViolations) {
  const auto violates = [&](auto send) {
    const std::unique_ptr<TestClient> client = Open();
    client->InstallInline(1, FloatBytes({1, 2}));
    client->InstallSeed(2, 7);
    v1::Ordered message;
    send(message.mutable_install());
    client->Send(std::move(message));
    return ErrorReason(client->WaitClosed());
  };
  const auto copy = [](uint64_t storage, uint64_t base_version, uint64_t source,
                       uint64_t version) {
    return [=](v1::Install* install) {
      install->set_storage(storage);
      install->set_base_version(base_version);
      install->mutable_copy()->set_storage(source);
      install->mutable_copy()->set_version(version);
    };
  };
  EXPECT_EQ(violates(copy(3, 0, 4, 1)), "PROTOCOL_VIOLATION");  // unknown
  EXPECT_EQ(violates(copy(3, 0, 1, 2)), "PROTOCOL_VIOLATION");  // version
  EXPECT_EQ(violates(copy(3, 0, 2, 1)), "PROTOCOL_VIOLATION");  // generator
  EXPECT_EQ(violates(copy(2, 1, 1, 1)), "PROTOCOL_VIOLATION");  // to one
  EXPECT_EQ(violates(copy(1, 1, 1, 1)), "PROTOCOL_VIOLATION");  // itself
}

}  // namespace
}  // namespace djinn::worker
