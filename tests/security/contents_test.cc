// Tests contents of tenants that have a process each: on a worker that restarts
// with its disk, and between tenants that agreed to share and one that did not.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/hash/content_proof.h"
#include "common/hash/hash.h"
#include "common/transport/shared_bytes.h"
#include "gtest/gtest.h"
#include "tests/e2e/eventually.h"
#include "tests/e2e/wire_client.h"
#include "tests/e2e/wire_messages.h"
#include "tests/security/raw_client.h"
#include "tests/security/walls.h"

namespace djinn {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(60);

// The messages that an upload needed.
struct Upload {
  // The worker asked for a proof, and for the bytes.
  bool proof = false;
  bool bytes = false;
};

// A raw client that uploads by hash.
class Uploader {
 public:
  Uploader(const Walls& walls, const std::string& tenant)
      : client_(walls, tenant) {}

  // Uploads `bytes` into the storage, under their own hash; proves with `known`
  // if it is asked.
  Upload Send(uint64_t storage, const std::string& bytes,
              const std::string& known) {
    const uint64_t id = ++last_transfer_;
    v1::Ordered install = InstallTransfer(
        storage, id, bytes.size(), HashContent(bytes.data(), bytes.size()));
    install.mutable_install()->mutable_transfer()->set_provable(true);
    client_.Send(std::move(install));
    Upload upload;
    size_t from = 0;
    for (;;) {
      const auto decision =
          client_.control().Wait(&from, [&](const v1::ControlResponse& r) {
            return r.has_transfer() && r.transfer().transfer_id() == id;
          });
      if (!decision.has_value()) {
        ADD_FAILURE() << "no decision: " << client_.control().WaitEnd();
        return upload;
      }
      if (!decision->transfer().has_prove()) {
        upload.bytes = decision->transfer().send();
        EXPECT_NE(upload.bytes, decision->transfer().already_held());
        break;
      }
      upload.proof = true;
      v1::ControlRequest answer;
      answer.mutable_proof()->set_transfer_id(id);
      answer.mutable_proof()->set_mac(
          ProveContent(decision->transfer().prove().key(), known));
      client_.control().Send(answer);
    }
    if (upload.bytes) SendBytes(id, bytes);
    // The storage has the bytes.
    EXPECT_EQ(client_.ValueOf(storage, 1), bytes.substr(0, Values().size()));
    return upload;
  }
  Upload Send(uint64_t storage, const std::string& bytes) {
    return Send(storage, bytes, bytes);
  }
  // Doubles the first elements of a storage of floats at version 1, in place,
  // and returns them.
  std::string Double(uint64_t storage) {
    v1::Graph graph = CallOf(Op("aten::add_", "Tensor"));
    graph.mutable_slots()->RemoveLast();
    graph.mutable_nodes(0)->clear_results();
    graph.mutable_nodes(0)->add_writes(0);
    client_.Send(Define(50, std::move(graph)));
    v1::Ordered run;
    run.mutable_run()->set_graph_id(50);
    v1::Binding* const binding = run.mutable_run()->add_bindings();
    binding->set_storage(storage);
    binding->set_base_version(1);
    binding->set_reads(true);
    binding->set_writes(1);
    client_.Send(std::move(run));
    return client_.ValueOf(storage, 2);
  }
  RawClient& client() { return client_; }

 private:
  void SendBytes(uint64_t id, const std::string& bytes) {
    if (bulk_ == nullptr) {
      bulk_ = client_.session().OpenBulk();
      v1::BulkChunk chunk;
      chunk.mutable_hello()->set_session_id(client_.session().id());
      chunk.mutable_hello()->set_lease_token(client_.session().lease().token());
      bulk_->Send(chunk);
    }
    for (size_t at = 0; at < bytes.size(); at += kBulkChunkBytes) {
      bulk_->Send(Chunk(id, at, bytes.substr(at, kBulkChunkBytes)));
    }
  }

  RawClient client_;
  std::unique_ptr<BulkStream> bulk_;
  uint64_t last_transfer_ = 0;
};

std::string BytesOf(char c) { return std::string(3 << 20, c); }

// The attacker and the victim share contents; attacker0 shares none. Each test
// has workers of its own, and so knows what their disk has.
class ContentsTest : public testing::Test {
 protected:
  // Waits until the worker's disk has a content.
  void AwaitKept() {
    EXPECT_TRUE(Eventually(
        [&] { return walls_.Info().disk().cache().entries() > 0; }, kPatience));
  }

  Walls walls_{
      "{mode: process, executors: 4, content_memory: 64MiB}",
      /*workers=*/1,
      /*more_attackers=*/1,
      {.sharing = {"attacker", "victim"},
       .of_workers = "content_disk: {directory: contents, limit: 1GiB}\n",
       .shared_memory = false}};
};

TEST_F(ContentsTest, TenantsThatAgreedSendHashesAndNobodyElseLearns) {
  std::string bytes;
  while (bytes.size() < 3 << 20) bytes += Values();
  Uploader attacker(walls_, "attacker");
  Upload first = attacker.Send(10, bytes);
  EXPECT_TRUE(first.bytes);
  AwaitKept();
  Uploader victim(walls_, "victim");
  const Upload second = victim.Send(10, bytes);
  EXPECT_TRUE(second.proof);
  EXPECT_FALSE(second.bytes);
  EXPECT_TRUE(absl::StrContains(
      walls_.Metrics(),
      absl::StrCat("djinn_worker_kept_content_bytes{use=\"lent\"} ",
                   bytes.size())));
  // A tenant's write to the content changes its own storage alone.
  EXPECT_EQ(victim.Double(10), FloatBytes({2, 4, 6, 8}));
  EXPECT_EQ(attacker.client().ValueOf(10, 1), Values());
  EXPECT_FALSE(Uploader(walls_, "victim").Send(10, bytes).bytes);
  // The wrong bytes prove nothing, whether the worker has the content or not.
  const std::string others = BytesOf('o');
  Uploader again(walls_, "attacker");
  EXPECT_TRUE(again.Send(10, BytesOf('n'), others).bytes);
  // Who did not agree sends everything, and is not even asked.
  Uploader stranger(walls_, "attacker0");
  for (const std::string& content : {bytes, BytesOf('a')}) {
    const Upload upload = stranger.Send(content == bytes ? 10 : 11, content);
    EXPECT_FALSE(upload.proof);
    EXPECT_TRUE(upload.bytes);
  }
  EXPECT_TRUE(attacker.client().Works());
  EXPECT_TRUE(victim.client().Works());
}

TEST_F(ContentsTest, RestartedWorkerHasItsContentsAgain) {
  const std::string bytes = BytesOf('r');
  const uint64_t before = walls_.Info().incarnation();
  {
    Uploader owner(walls_, "attacker0");
    EXPECT_TRUE(owner.Send(10, bytes).bytes);
    AwaitKept();
  }
  walls_.RestartWorker();
  EXPECT_TRUE(Eventually(
      [&] {
        const v1::WorkerInfo info = walls_.Info();
        return info.incarnation() != before &&
               info.state() == v1::WorkerInfo::ACTIVE;
      },
      kPatience));
  {
    Uploader owner(walls_, "attacker0");
    EXPECT_FALSE(owner.Send(10, bytes).bytes);
    EXPECT_TRUE(owner.client().Works());
  }
  // The disk has it for its tenant alone.
  Uploader other(walls_, "victim");
  EXPECT_TRUE(other.Send(10, bytes).bytes);
}

}  // namespace
}  // namespace djinn
