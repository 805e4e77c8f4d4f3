// Finds where the program made the call that is being captured.
#ifndef CLIENT_LIB_CAPTURE_DEVICE_CALL_SITE_H_
#define CLIENT_LIB_CAPTURE_DEVICE_CALL_SITE_H_

#include <cstdint>
#include <string>

namespace djinn::capture {

// Returns the site's number in CallSiteTable, together with the lane's phase,
// or 0 if nothing is known. A call of a backward pass has the site of its
// forward call. The kernel calls this for each call while call sites or phases
// are on; with call sites on it calls the CallSiteSource.
uint32_t CurrentCallSite();

// Returns ", called at ..., in module ..." for the current call of this thread,
// or an empty string if nothing is known. It works also while call sites are
// off, and calls the CallSiteSource; use it on rare paths only.
std::string DescribeCurrentCallSite();

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_DEVICE_CALL_SITE_H_
