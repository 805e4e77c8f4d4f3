// Whose turn it is of tenants that are served one after another, by name: whom
// nobody has anything of need not be remembered to keep its place.
#ifndef COMMON_BASE_TENANT_TURNS_H_
#define COMMON_BASE_TENANT_TURNS_H_

#include <string>

namespace djinn {

// In an ordered map by name, the first behind `last` that is `ready`, after the
// end from the beginning, `last` itself at the very end; end() when none is.
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
