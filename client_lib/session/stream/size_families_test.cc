#include "client_lib/session/stream/size_families.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "client_lib/session/recording/recording.h"
#include "client_lib/session/recording/segment.h"
#include "client_lib/session/stream/run_encoder.h"
#include "client_lib/session/testing/calls.h"
#include "common/srg/proto_codec.h"
#include "common/srg/size_hole.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

// A segment's graph and its key.
struct Named {
  std::string key;
  srg::Graph graph;
};

class SizeFamiliesTest : public testing::Test {
 protected:
  StoragePtr New() {
    return StoragePtr(new RemoteStorage(++last_id_, nullptr, 16));
  }

  // Makes a call on an existing storage and a created one, with every kind of
  // argument. `at` holds the varying integers, in order.
  Named Make(const std::vector<int64_t>& at, int64_t fixed = 7) {
    Call call;
    call.Begin(TestOperator(3));
    const StoragePtr x = New(), created = New(), y = New();
    Operand operand;
    operand.data_type = srg::DataType::kFloat32;
    const int64_t sizes[] = {at[0], fixed};
    const int64_t strides[] = {fixed, 1};
    operand.sizes = sizes;
    operand.strides = strides;
    operand.storage_offset = at[1];
    operand.storage = x.get();
    call.AddTensor(operand);
    call.AddNone();
    call.AddBoolean(true);
    call.AddText("text");
    call.AddTensorList(3);
    call.AddNone();
    operand.storage = created.get();
    call.AddTensor(operand);
    const int64_t value = 5;
    call.AddScalarTensor(srg::DataType::kInt64, true, &value);
    call.AddInteger(at[2]);
    call.AddReal(0.5);
    call.AddBooleans({1, 0, 1});
    call.AddIntegers({fixed, at[3]});
    call.AddReals({1.5, 2.5});
    call.AddComplex({1, 2});
    call.AddDevice();
    call.AddScalars({int64_t{4}, true, 2.5, std::complex<double>(0, 1), at[4]});
    operand.storage = y.get();
    operand.access = kCreates;
    call.AddResult(operand);
    call.AddUndefinedResult();

    Segment segment;
    segment.Open(1, 1, Segment::kMaxCalls);
    segment.Append(&call);
    const std::vector<srg::Slot> kinds = {
        {srg::Slot::Kind::kBound, 0},
        {srg::Slot::Kind::kCreated, static_cast<uint64_t>(at[5])},
        {srg::Slot::Kind::kResult, 0}};
    const std::vector<uint32_t> slots = {0, 1, 2};
    Named named;
    BuildGraphKey(segment, slots, kinds, &named.key);
    named.graph = BuildGraph(segment, slots, kinds);
    return named;
  }
  // Makes a call whose integers are a + b·n.
  Named MakeAt(int64_t n) {
    return Make({64 + n, 640 + 10 * n, 3 - n, 100, n, 8000 + 4 * n});
  }

  uint64_t last_id_ = 0;
  SizeFamilies families_;
};

TEST_F(SizeFamiliesTest, AKeysIntegersAreThoseOfItsGraph) {
  const Named named = Make({11, 12, 13, 14, 15, 16});
  std::vector<int64_t> of_key;
  for (const uint32_t position : FindKeyIntegers(named.key)) {
    int64_t value;
    std::memcpy(&value, named.key.data() + position, sizeof(value));
    of_key.push_back(value);
  }
  std::vector<int64_t> of_graph;
  srg::ForEachInteger(named.graph, [&](const auto& value) {
    of_graph.push_back(static_cast<int64_t>(value));
  });
  EXPECT_EQ(of_key, of_graph);
  EXPECT_EQ(of_key.size(), 21u);
}

TEST_F(SizeFamiliesTest, TheThirdOnALineMakesOne) {
  EXPECT_FALSE(families_.Find(MakeAt(0).key).has_value());
  EXPECT_FALSE(families_.Find(MakeAt(2).key).has_value());
  const std::optional<SizeFamilies::Member> third =
      families_.Find(MakeAt(5).key);
  ASSERT_TRUE(third.has_value());
  EXPECT_EQ(third->size, 5);
  const std::string family(third->family);
  // The family's graph at each size equals the member's own graph.
  srg::Graph base = MakeAt(0).graph;
  base.size_hole = *third->hole;
  ASSERT_TRUE(srg::CheckSizeHole(base).ok());
  for (const int64_t n : {0, 1, 2, 3, 1000, -1}) {
    const Named named = MakeAt(n);
    const std::optional<SizeFamilies::Member> member =
        families_.Find(named.key);
    ASSERT_TRUE(member.has_value()) << n;
    EXPECT_EQ(member->family, family);
    EXPECT_EQ(member->size, n);
    EXPECT_EQ(*srg::AtSize(base, n), named.graph);
  }
}

TEST_F(SizeFamiliesTest, IntegersOffTheLineAreInNoFamily) {
  families_.Find(MakeAt(0).key);
  families_.Find(MakeAt(1).key);
  ASSERT_TRUE(families_.Find(MakeAt(2).key).has_value());
  // Each integer in its turn differs from the line.
  const std::vector<int64_t> third = {67, 670, 0, 100, 3, 8012};
  ASSERT_TRUE(families_.Find(Make(third).key).has_value());
  for (size_t i = 0; i < third.size(); ++i) {
    std::vector<int64_t> other = third;
    ++other[i];
    EXPECT_FALSE(families_.Find(Make(other).key).has_value()) << i;
  }
  // A constant integer differs.
  EXPECT_FALSE(families_.Find(Make(third, 8).key).has_value());
}

TEST_F(SizeFamiliesTest, TwoPointsAreNoLine) {
  families_.Find(MakeAt(0).key);
  families_.Find(MakeAt(1).key);
  EXPECT_FALSE(families_.Find(MakeAt(1).key).has_value());
  EXPECT_FALSE(families_.Find(MakeAt(0).key).has_value());
}

TEST_F(SizeFamiliesTest, BetweenTheStepsThereAreNoMembers) {
  const auto make = [&](int64_t n) {
    return Make({2 * n, 3 * n, 4, 4, 4, 4}).key;
  };
  families_.Find(make(0));
  families_.Find(make(3));
  // The family's step is the greatest that all points share.
  EXPECT_EQ(families_.Find(make(4))->size, 4);
  EXPECT_FALSE(families_.Find(Make({3, 4, 4, 4, 4, 4}).key).has_value());
}

TEST_F(SizeFamiliesTest, IntegersAtTheEndsOfTheirRangeAreNoLine) {
  constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  const int64_t ends[] = {kMin, kMin / 2, -1, 0, 1, 2, kMax / 2, kMax};
  for (const int64_t a : ends) {
    for (const int64_t b : ends) {
      for (const int64_t c : ends) {
        SizeFamilies families;
        const Named first = Make({0, 0, 0, 0, a, 0});
        families.Find(first.key);
        families.Find(Make({0, 0, 1, 0, b, 0}).key);
        const Named third = Make({0, 0, 2, 0, c, 0});
        const auto member = families.Find(third.key);
        if (!member.has_value()) continue;
        // Checks the conversion to the size and back.
        const auto move = [&](srg::Graph from, int64_t size) {
          from.size_hole = *member->hole;
          return srg::AtSize(std::move(from), size);
        };
        const auto there = move(first.graph, member->size);
        const auto back = move(third.graph, -member->size);
        ASSERT_TRUE(there.ok() && back.ok()) << a << ", " << b << ", " << c;
        EXPECT_EQ(*there, third.graph);
        EXPECT_EQ(*back, first.graph);
      }
    }
  }
}

// The integer moves by -2^62 twice, and would have to come back by 2^63.
TEST_F(SizeFamiliesTest, OverflowingStepIsInNoFamily) {
  constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
  families_.Find(Make({0, 0, 0, 0, 0, 0}).key);
  families_.Find(Make({0, 0, 1, 0, kMin / 2, 0}).key);
  EXPECT_FALSE(families_.Find(Make({0, 0, 2, 0, kMin, 0}).key).has_value());
}

TEST_F(SizeFamiliesTest, IsBounded) {
  const size_t one = MakeAt(0).key.size();
  SizeFamilies families(20 * one);
  families.Find(MakeAt(0).key);
  families.Find(MakeAt(1).key);
  ASSERT_TRUE(families.Find(MakeAt(2).key).has_value());
  // The calls have other operators, each different from the others.
  for (int op = 0; op < 100; ++op) {
    Call call = MakeCall(op, {{New(), kReads}});
    Segment segment;
    segment.Open(1, 1, Segment::kMaxCalls);
    segment.Append(&call);
    std::string key;
    BuildGraphKey(segment, {0}, {{srg::Slot::Kind::kBound, 0}}, &key);
    key.resize(one);
    families.Find(key);
  }
  EXPECT_FALSE(families.Find(MakeAt(3).key).has_value());
}

// Encodes a loop over a growing tensor as the sender does.
TEST_F(SizeFamiliesTest, AGrowingLoopIsOneGraph) {
  GraphTable table(64);
  RunEncoder encoder(&table);
  std::vector<uint64_t> ids;
  std::vector<int64_t> sizes;
  srg::Graph defined;
  for (int64_t n = 0; n < 8; ++n) {
    StoragePtr x(new RemoteStorage(++last_id_, nullptr, 100 + n));
    StoragePtr y(new RemoteStorage(++last_id_, nullptr, 100 + n));
    Call call = MakeCall(1, {{x, kReads}, {y, kCreates}});
    Segment segment;
    segment.Open(1, 1, Segment::kMaxCalls);
    segment.Append(&call);
    const v1::Graph whole = encoder.Describe(segment);
    const RunEncoder::Encoded encoded = encoder.Encode(segment);
    ids.push_back(encoded.run.graph_id());
    sizes.push_back(encoded.run.size());
    if (encoded.definition.has_value()) {
      defined = *srg::FromProto(encoded.definition->message.graph());
    }
    EXPECT_EQ(*srg::AtSize(defined, encoded.run.size()),
              *srg::FromProto(whole));
  }
  EXPECT_EQ(ids, (std::vector<uint64_t>{1, 2, 3, 3, 3, 3, 3, 3}));
  EXPECT_EQ(sizes, (std::vector<int64_t>{0, 0, 2, 3, 4, 5, 6, 7}));
}

// Encodes a callable's captured graphs for sequences of several lengths, in any
// order.
TEST_F(SizeFamiliesTest, CapturedGraphsThatDifferInSizesAreOneGraph) {
  GraphTable table(64);
  RunEncoder encoder(&table);
  std::vector<uint64_t> ids;
  std::vector<srg::Graph> defined;
  int definitions = 0;
  for (const int64_t n : {5, 6, 7, 30, 2, 5, 7, 30, 29, 6}) {
    const Named named = MakeAt(n);
    CapturedPart part;
    part.key = named.key;
    part.graph = named.graph;
    std::vector<StoragePtr> storages;
    std::vector<RunBinding> bindings;
    for (size_t slot = 0; slot < named.graph.slots.size(); ++slot) {
      storages.push_back(New());
      bindings.push_back({.storage = storages.back().get(),
                          .id = storages.back()->id(),
                          .writes = slot == 0 ? 0u : 1u,
                          .created = slot != 0});
    }
    const RunEncoder::Encoded encoded =
        encoder.Encode(part, RunMode(), bindings);
    const uint64_t id = encoded.run.graph_id();
    ids.push_back(id);
    defined.resize(std::max<size_t>(defined.size(), id + 1));
    if (encoded.definition.has_value()) {
      ++definitions;
      defined[id] = *srg::FromProto(encoded.definition->message.graph());
    }
    if (id == 3) {
      EXPECT_EQ(*srg::AtSize(defined[id], encoded.run.size()), named.graph);
    } else {
      EXPECT_EQ(encoded.run.size(), 0);
      EXPECT_EQ(defined[id], named.graph);
    }
  }
  // The first two graphs were defined before the family existed.
  EXPECT_EQ(ids, (std::vector<uint64_t>{1, 2, 3, 3, 3, 1, 3, 3, 3, 2}));
  EXPECT_EQ(definitions, 3);
}

}  // namespace
}  // namespace djinn
