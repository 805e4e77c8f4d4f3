#include "client_lib/session/storage_copies.h"

namespace djinn {

RemoteStorage::~RemoteStorage() { delete copies_; }

}  // namespace djinn
