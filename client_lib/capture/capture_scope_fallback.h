// The dispatcher's side of djinn::CaptureScope.
#ifndef CLIENT_LIB_CAPTURE_CAPTURE_SCOPE_FALLBACK_H_
#define CLIENT_LIB_CAPTURE_CAPTURE_SCOPE_FALLBACK_H_

namespace djinn::capture {

// Idempotent.
void RegisterCaptureScope();

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_CAPTURE_SCOPE_FALLBACK_H_
