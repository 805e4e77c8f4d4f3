// Serves tenants one after another in the order of their names. A tenant
// without anything to serve need not be remembered to keep its position.
#ifndef COMMON_BASE_TENANT_TURNS_H_
#define COMMON_BASE_TENANT_TURNS_H_

#include <string>

namespace djinn {

// Returns the first entry after `last` for which `ready` is true, in a map
// ordered by name. The search continues at the beginning after the end and
// considers `last` itself at the very end. Returns end() when there is none.
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

#endif  // COMMON_BASE_TENANT_TURNS_H_
