// Decides which item is evicted first from a store of limited size that tenants
// share.
//
// A tenant holds each item that it used. When room is needed, the tenant with
// the greatest share releases the item that it used least recently. An item is
// evicted when no tenant holds it. An item that several tenants hold counts in
// full for each of them. Therefore
//   - a tenant loses nothing to others while its share is no larger than if the
//     limits were divided equally among the tenants that hold something: when
//     the items exceed a limit, the shares add up to more than one, so another
//     tenant's share is greater;
//   - a tenant cannot tell from its own items whether others hold them;
//   - an item that one tenant releases remains with the others.
// The share of a tenant is the larger of its share of the number of items and
// its share of their bytes.
//
// Not thread-safe.
#ifndef COMMON_BASE_TENANT_ORDER_H_
#define COMMON_BASE_TENANT_ORDER_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <limits>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"

namespace djinn {

// Orders items of type Item. An Item has a member `TenantOrder<Item>::Holders
// holders`, does not move, and lives at least as long as a tenant holds it.
template <typename Item>
class TenantOrder {
  struct Tenant;
  struct Hold {
    Tenant* tenant;
    Item* item;
    uint64_t bytes;
  };
  // Most recently used first.
  using Holds = std::list<Hold>;

 public:
  struct Limits {
    uint64_t items = std::numeric_limits<uint64_t>::max();
    uint64_t bytes = std::numeric_limits<uint64_t>::max();
  };
  // The tenants that hold an item.
  class Holders {
   public:
    bool empty() const { return holds_.empty(); }
    bool contains(absl::string_view tenant) const {
      return holds_.contains(tenant);
    }

   private:
    friend class TenantOrder;
    // Keyed by the names that the tenant table owns.
    absl::flat_hash_map<absl::string_view, typename Holds::iterator> holds_;
  };
  struct LetGo {
    std::string tenant;
    Item* item;
  };

  explicit TenantOrder(Limits limits) : limits_(limits) {}
  TenantOrder(const TenantOrder&) = delete;
  TenantOrder& operator=(const TenantOrder&) = delete;

  // Notes that the tenant uses the item. Returns false, without effect, when it
  // does not hold the item. Allocates nothing.
  bool Use(absl::string_view tenant, Item* item) {
    const auto held = item->holders.holds_.find(tenant);
    if (held == item->holders.holds_.end()) return false;
    Holds& holds = held->second->tenant->holds;
    holds.splice(holds.begin(), holds, held->second);
    return true;
  }

  // Notes that the tenant uses the item and holds it from now on, for `bytes`.
  void Take(absl::string_view tenant, Item* item, uint64_t bytes) {
    if (Use(tenant, item)) {
      Resize(item->holders.holds_.find(tenant)->second, bytes);
      return;
    }
    const auto [it, added] = tenants_.try_emplace(std::string(tenant));
    Tenant* const owner = &it->second;
    if (added) {
      owner->name = &it->first;
    } else {
      by_share_.erase(PlaceOf(*owner));
    }
    owner->holds.push_front({owner, item, bytes});
    owner->bytes += bytes;
    item->holders.holds_.emplace(*owner->name, owner->holds.begin());
    by_share_.insert(PlaceOf(*owner));
  }

  // Changes the size of an item: it counts `bytes(tenant)` for each tenant that
  // holds it. Does not count as a use of the item.
  void Resize(Item* item,
              absl::FunctionRef<uint64_t(absl::string_view tenant)> bytes) {
    for (const auto& [tenant, hold] : item->holders.holds_) {
      Resize(hold, bytes(tenant));
    }
  }

  // Makes the tenant with the greatest share release the item that it used
  // least recently, and returns that item. Never releases `keep`, which may be
  // null; if it is not, one tenant holds it and used no other item since.
  // Returns nothing when there is no other item.
  std::optional<LetGo> Release(const Item* keep) {
    for (auto next = by_share_.rbegin(); next != by_share_.rend(); ++next) {
      Tenant* const tenant = std::get<Tenant*>(*next);
      const auto last = std::prev(tenant->holds.end());
      if (last->item == keep) continue;
      LetGo let_go = {*tenant->name, last->item};
      by_share_.erase(PlaceOf(*tenant));
      last->item->holders.holds_.erase(*tenant->name);
      tenant->bytes -= last->bytes;
      tenant->holds.erase(last);
      if (tenant->holds.empty()) {
        tenants_.erase(let_go.tenant);
      } else {
        by_share_.insert(PlaceOf(*tenant));
      }
      return let_go;
    }
    return std::nullopt;
  }

 private:
  struct Tenant {
    const std::string* name = nullptr;
    Holds holds;
    uint64_t bytes = 0;
  };
  // Names decide between equal shares.
  using Place = std::tuple<double, absl::string_view, Tenant*>;

  Place PlaceOf(Tenant& tenant) const {
    const auto share = [](uint64_t of, uint64_t limit) {
      return static_cast<double>(of) /
             static_cast<double>(std::max<uint64_t>(limit, 1));
    };
    return {std::max(share(tenant.holds.size(), limits_.items),
                     share(tenant.bytes, limits_.bytes)),
            *tenant.name, &tenant};
  }

  void Resize(typename Holds::iterator hold, uint64_t bytes) {
    if (hold->bytes == bytes) return;
    Tenant& tenant = *hold->tenant;
    by_share_.erase(PlaceOf(tenant));
    tenant.bytes += bytes - hold->bytes;
    hold->bytes = bytes;
    by_share_.insert(PlaceOf(tenant));
  }

  const Limits limits_;
  // The tenants that hold something.
  std::map<std::string, Tenant, std::less<>> tenants_;
  std::set<Place> by_share_;
};

// Chooses the tenant to serve after `last`. Tenants take turns in the order of
// their names, so a tenant with nothing to serve need not be stored to keep its
// position.
//
// In a map ordered by name, returns the first entry after `last` for which
// `ready` is true. After the last entry the search continues with the first,
// and considers `last` itself at the very end. Returns end() when no entry is
// ready.
template <typename Tenants, typename Ready>
typename Tenants::iterator NextInTurn(Tenants& tenants, const std::string& last,
                                      const Ready& ready) {
  const auto first = tenants.upper_bound(last);
  for (auto next = first; next != tenants.end(); ++next) {
    if (ready(next->second)) return next;
  }
  for (auto next = tenants.begin(); next != first; ++next) {
    if (ready(next->second)) return next;
  }
  return tenants.end();
}

}  // namespace djinn

#endif  // COMMON_BASE_TENANT_ORDER_H_
