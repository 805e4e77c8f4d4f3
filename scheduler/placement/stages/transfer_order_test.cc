#include "scheduler/placement/stages/transfer_order.h"

#include <algorithm>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn::scheduler {
namespace {

using testing::ElementsAre;

std::vector<uint64_t> Sorted(std::vector<TransferRank> ranks) {
  std::sort(ranks.begin(), ranks.end(), MovesBefore);
  std::vector<uint64_t> numbers;
  for (const TransferRank& rank : ranks) numbers.push_back(rank.number);
  return numbers;
}

TEST(TransferOrderTest, TransferWithTheMostWorkBehindItIsFirst) {
  EXPECT_THAT(Sorted({{1, 0.2, 1}, {1, 0.5, 2}, {1, 0, 3}}),
              ElementsAre(2, 1, 3));
}

TEST(TransferOrderTest, EarlierRoundIsFirst) {
  EXPECT_THAT(Sorted({{2, 9, 1}, {1, 0.1, 2}}), ElementsAre(2, 1));
}

TEST(TransferOrderTest, EqualsGoInTheirOrder) {
  EXPECT_THAT(Sorted({{1, 0.5, 8}, {1, 0.5, 7}}), ElementsAre(7, 8));
}

TEST(TransferOrderTest, UnknownTransferIsNotAwaited) {
  EXPECT_THAT(Sorted({{1, 100, 1}, {1}, {1, 0.5, 3}}), ElementsAre(0, 1, 3));
}

}  // namespace
}  // namespace djinn::scheduler
