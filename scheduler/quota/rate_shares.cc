#include "scheduler/quota/rate_shares.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

namespace djinn::scheduler {
namespace {

// A tenant, or a cohort.
struct Node {
  std::vector<Node*> children;
  double weight = 1;
  // The rate that the node and all nodes below it can still lend, and still
  // want, within its limits.
  double spare = 0;
  double wanted = 0;
  // Null for a cohort.
  RateShare* share = nullptr;
  // The part of a cohort's own rate that it can still lend.
  double own = 0;
  double borrowing_limit = std::numeric_limits<double>::infinity();
  double lending_limit = std::numeric_limits<double>::infinity();
};

// Gives the node what it wants, but `amount` at most. Returns the amount given.
double Borrow(Node* node, double amount) {
  double given = 0;
  amount = std::min(amount, node->wanted);
  if (node->share != nullptr) {
    given = amount;
    node->share->borrowed += given;
  } else {
    double weights = 0;
    for (const Node* child : node->children) weights += child->weight;
    // Begins with the node that wants least for its weight, which leaves the
    // rest to the others.
    std::sort(node->children.begin(), node->children.end(),
              [](const Node* a, const Node* b) {
                return a->wanted / a->weight < b->wanted / b->weight;
              });
    for (Node* const child : node->children) {
      // The last node's part is the whole remainder, up to rounding.
      const double part = std::min(1.0, child->weight / weights);
      given += Borrow(child, (amount - given) * part);
      weights -= child->weight;
    }
  }
  node->wanted -= given;
  return given;
}

// Takes `amount` from the nodes that can lend, in proportion to what they can
// lend.
void Lend(Node* node, double amount) {
  node->spare = std::max(0.0, node->spare - amount);
  if (node->share != nullptr) {
    node->share->lent += amount;
    return;
  }
  double all = node->own;
  for (const Node* const child : node->children) all += child->spare;
  if (all == 0) return;
  const double part = std::min(1.0, amount / all);
  for (Node* const child : node->children) Lend(child, part * child->spare);
  node->own -= part * node->own;
}

// Gives spare rate below the cohort to nodes below it first.
void ShareOut(Node* cohort) {
  cohort->spare = cohort->own;
  for (Node* const child : cohort->children) {
    if (child->share == nullptr) ShareOut(child);
    cohort->spare += child->spare;
    cohort->wanted += child->wanted;
  }
  Lend(cohort, Borrow(cohort, cohort->spare));
  cohort->spare = std::min(cohort->spare, cohort->lending_limit);
  cohort->wanted = std::min(cohort->wanted, cohort->borrowing_limit);
}

// Builds the cohorts of some tenants.
class Cohorts {
 public:
  Node* Find(const std::string& name) {
    const auto [found, added] = cohorts_.try_emplace(name);
    Node* const cohort = &found->second;
    if (!added) return cohort;
    const size_t slash = name.rfind('/');
    std::vector<Node*>& siblings = slash == std::string::npos
                                       ? roots_
                                       : Find(name.substr(0, slash))->children;
    siblings.push_back(cohort);
    return cohort;
  }
  const std::vector<Node*>& roots() const { return roots_; }

 private:
  // Pointers to the nodes stay valid.
  std::map<std::string, Node> cohorts_;
  std::vector<Node*> roots_;
};

std::string RootOf(const std::string& cohort) {
  return cohort.substr(0, cohort.find('/'));
}

}  // namespace

std::vector<RateShare> ShareRates(absl::Span<const RateDemand> demands,
                                  absl::Span<const CohortRate> rates) {
  constexpr double kAny = std::numeric_limits<double>::infinity();
  std::vector<RateShare> shares(demands.size());
  std::vector<Node> tenants(demands.size());
  std::map<std::string, double> lendable;
  Cohorts cohorts;
  for (size_t i = 0; i < demands.size(); ++i) {
    const RateDemand& tenant = demands[i];
    const double most = tenant.quota.lending_limit.value_or(kAny);
    shares[i].own = std::min(tenant.demand, tenant.quota.nominal);
    if (tenant.cohort.empty()) continue;
    tenants[i] = {
        .weight = tenant.weight,
        .spare = std::min(tenant.quota.nominal - shares[i].own, most),
        .wanted = std::min(tenant.demand - shares[i].own,
                           tenant.quota.borrowing_limit.value_or(kAny)),
        .share = &shares[i]};
    cohorts.Find(tenant.cohort)->children.push_back(&tenants[i]);
    lendable[RootOf(tenant.cohort)] += std::min(tenant.quota.nominal, most);
  }
  for (const CohortRate& rate : rates) {
    Node* const cohort = cohorts.Find(rate.cohort);
    cohort->weight = rate.weight;
    cohort->own = rate.quota.nominal;
    cohort->borrowing_limit = rate.quota.borrowing_limit.value_or(kAny);
    cohort->lending_limit = rate.quota.lending_limit.value_or(kAny);
    lendable[RootOf(rate.cohort)] += rate.quota.nominal;
  }
  for (Node* const root : cohorts.roots()) ShareOut(root);
  for (size_t i = 0; i < demands.size(); ++i) {
    if (demands[i].cohort.empty()) continue;
    shares[i].lendable = lendable.at(RootOf(demands[i].cohort));
  }
  return shares;
}

}  // namespace djinn::scheduler
