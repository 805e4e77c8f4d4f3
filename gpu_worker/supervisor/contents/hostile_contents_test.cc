// Tests that an executor that breaks the protocol for contents ends alone.
#include <sys/socket.h>

#include <functional>
#include <string>

#include "common/base/no_threads.h"
#include "common/hash/content_proof.h"
#include "gmock/gmock.h"
#include "gpu_worker/supervisor/contents/content_service_fixture.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

using ::testing::HasSubstr;

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
        Lie{"PacketWithDescriptors",
            [](RawExecutor* e) {
              EXPECT_TRUE(
                  SendPacket(e->socket(), WithId(1), MakeEvent().value()).ok());
            },
            "with descriptors"},
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

TEST_F(HostileContentsTest, WithoutAThreadAnExecutorHasNoContentsAndOthersDo) {
  Restart(/*disk=*/true, /*kept=*/kShare);
  {
    const NoThreads none;
    EXPECT_EQ(executor(1).Next().answer_case(),
              v1::ContentAnswer::ANSWER_NOT_SET);
  }
  executor(2).Keep(bytes_);
  executor(2).Find(bytes_);
  EXPECT_TRUE(executor(2).Next().has_lent());
}

}  // namespace
}  // namespace djinn::worker
