// Logs one line per message between a device and its worker, for the debug
// level "execution".
#ifndef CLIENT_LIB_SESSION_DEVICE_OUTGOING_MESSAGE_LINES_H_
#define CLIENT_LIB_SESSION_DEVICE_OUTGOING_MESSAGE_LINES_H_

#include "djinn/v1/execution.pb.h"

namespace djinn {

void LogSent(int device, const v1::ControlRequest& message);
void LogReceived(int device, const v1::ControlResponse& message);

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_DEVICE_OUTGOING_MESSAGE_LINES_H_
