#include "gpu_worker/plan/lockstep.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"

namespace djinn::worker {
namespace {

class Lockstep {
 public:
  Lockstep(absl::Span<LockstepMember> members, OperatorLibrary* library,
           const LockstepCalls& calls)
      : members_(members),
        library_(library),
        calls_(calls),
        heads_(members.size()),
        last_(members.size()),
        charged_until_(calls.now()) {
    for (size_t i = 0; i < members.size(); ++i) {
      // A run without room for its values waits until the others have freed
      // theirs.
      (members[i].run->cramped() ? cramped_ : going_).push_back(i);
    }
  }

  absl::Duration Execute() {
    for (size_t at = 0; at < going_.size();) at = Advance(at) ? at + 1 : at;
    while (!going_.empty()) {
      const absl::Duration start = charged_until_;
      ExecuteProduct(ChooseProduct());
      products_ += charged_until_ - start;
      for (size_t at = 0; at < going_.size();) {
        const bool waits = heads_[going_[at]] != nullptr;
        at = waits || Advance(at) ? at + 1 : at;
      }
    }
    for (const size_t member : cramped_) {
      OngoingRun* const run = members_[member].run;
      while (run->Advance() != nullptr) run->RunProduct();
      End(member);
    }
    return products_;
  }

 private:
  using Product = OngoingRun::Product;
  // Maps a weight and the kind of product to the last node at which a run
  // reaches it.
  using LastPlaces =
      absl::flat_hash_map<std::pair<const Buffer*, uint64_t>, uint32_t>;
  // The rows of one member in the product being executed.
  struct Part {
    size_t member;
    int64_t rows;
  };

  // Advances to the member's next product. Returns false if there is none.
  bool Advance(size_t at) {
    const size_t member = going_[at];
    heads_[member] = members_[member].run->Advance();
    if (heads_[member] != nullptr) {
      Charge(member);
      return true;
    }
    going_.erase(going_.begin() + static_cast<ptrdiff_t>(at));
    End(member);
    return false;
  }

  void End(size_t member) {
    Charge(member);
    calls_.done(member);
    Charge(member);
  }

  // Charges the time since the last charge to the member.
  void Charge(size_t member) {
    const absl::Duration now = calls_.now();
    members_[member].used += now - charged_until_;
    charged_until_ = now;
  }

  // Returns whether the member waits at another product and will reach this
  // one.
  bool WillCome(size_t member, const Product& product) {
    const Product* const head = heads_[member];
    if (head->Joins(product)) return false;
    LastPlaces& last = last_[member];
    if (last.empty()) {
      for (const Product& one : members_[member].run->products()) {
        last[{one.weight, one.kind}] = one.node;
      }
    }
    const auto found = last.find({product.weight, product.kind});
    return found != last.end() && found->second > head->node;
  }

  // Returns a product that no other member will reach, or the first product if
  // every member waits for another.
  const Product& ChooseProduct() {
    for (const size_t candidate : going_) {
      const Product& product = *heads_[candidate];
      if (std::none_of(going_.begin(), going_.end(), [&](size_t member) {
            return WillCome(member, product);
          })) {
        return product;
      }
    }
    return *heads_[going_.front()];
  }

  // Executes the product for all members that wait at it.
  void ExecuteProduct(const Product product) {
    at_product_.clear();
    for (const size_t member : going_) {
      if (!heads_[member]->Joins(product)) continue;
      at_product_.push_back({member, heads_[member]->rows});
      heads_[member] = nullptr;
    }
    if (at_product_.size() == 1) {
      const size_t member = at_product_.front().member;
      members_[member].run->RunProduct();
      return Charge(member);
    }
    Join();
  }

  void Join() {
    staged_.clear();
    joined_calls_.clear();
    for (const Part& part : at_product_) {
      JoinedCall call;
      if (members_[part.member].run->StageProduct(&call)) {
        staged_.push_back(part);
        joined_calls_.push_back(call);
      }
      Charge(part.member);
    }
    if (joined_calls_.size() > 1) {
      library_->ExecuteJoined(absl::MakeSpan(joined_calls_));
      Share();
    }
    for (size_t i = 0; i < staged_.size(); ++i) {
      members_[staged_[i].member].run->SettleProduct(joined_calls_[i]);
      Charge(staged_[i].member);
    }
  }

  // Divides the joined call's time among the members by rows.
  void Share() {
    joined_.clear();
    int64_t rows = 0;
    for (size_t i = 0; i < staged_.size(); ++i) {
      if (!joined_calls_[i].done) continue;
      joined_.push_back(staged_[i].member);
      rows += staged_[i].rows;
    }
    // No call was executed: the first member pays for the attempt.
    if (joined_.empty()) return Charge(staged_.front().member);
    const absl::Duration now = calls_.now();
    int64_t left = absl::ToInt64Nanoseconds(now - charged_until_);
    charged_until_ = now;
    int64_t rows_left = rows;
    for (size_t i = 0; i < staged_.size(); ++i) {
      if (!joined_calls_[i].done) continue;
      // The last member takes the remainder, so that the parts add up.
      const int64_t part = left / rows_left * staged_[i].rows +
                           left % rows_left * staged_[i].rows / rows_left;
      members_[staged_[i].member].used += absl::Nanoseconds(part);
      left -= part;
      rows_left -= staged_[i].rows;
    }
    calls_.joined(joined_, rows);
  }

  const absl::Span<LockstepMember> members_;
  OperatorLibrary* const library_;
  const LockstepCalls& calls_;
  // The product that each member waits at; null while it does not wait.
  std::vector<const Product*> heads_;
  // Filled when WillCome() first needs a member's entry.
  std::vector<LastPlaces> last_;
  // Members with nodes left: those that advance in lockstep, and those that run
  // alone afterwards.
  std::vector<size_t> going_;
  std::vector<size_t> cramped_;
  absl::Duration charged_until_;
  absl::Duration products_;
  // Scratch space of the product being executed, kept to save allocations.
  std::vector<Part> at_product_;
  std::vector<Part> staged_;
  std::vector<JoinedCall> joined_calls_;
  std::vector<size_t> joined_;
};

}  // namespace

absl::Duration ExecuteInLockstep(absl::Span<LockstepMember> members,
                                 OperatorLibrary* library,
                                 const LockstepCalls& calls) {
  return Lockstep(members, library, calls).Execute();
}

SharedProducts::SharedProducts(Products products) : total_(products.size()) {
  for (const OngoingRun::Product& product : products) {
    ++counts_[{product.weight, product.kind}];
  }
}

bool SharedProducts::Suit(Products others) const {
  if (others.empty()) return false;
  size_t met = 0;
  size_t others_met = 0;
  absl::flat_hash_set<std::pair<const Buffer*, uint64_t>> seen;
  for (const OngoingRun::Product& other : others) {
    const auto found = counts_.find({other.weight, other.kind});
    if (found == counts_.end()) continue;
    ++others_met;
    if (seen.insert(found->first).second) met += found->second;
  }
  return 2 * others_met >= others.size() && 2 * met >= total_;
}

}  // namespace djinn::worker
