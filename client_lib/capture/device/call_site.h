// Where the call that is being captured was made, in the program's own terms.
#ifndef CLIENT_LIB_CAPTURE_DEVICE_CALL_SITE_H_
#define CLIENT_LIB_CAPTURE_DEVICE_CALL_SITE_H_

#include <cstdint>
#include <string>

namespace djinn::capture {

// Its number in CallSiteTable, with the lane's phase; 0 when nothing is known.
// In a backward pass the place is the forward call's. Asked for each call while
// call sites are on or phases are named; the former calls out to the
// CallSiteSource.
uint32_t CurrentCallSite();

// ", called at ..., in module ..." of what this thread does now, also while
// call sites are off: for what is rare. Calls out to the CallSiteSource. Empty
// when nothing is known.
std::string DescribeCurrentCallSite();

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_DEVICE_CALL_SITE_H_
