#include "tests/bench/raw_socket.h"

#include <sys/mman.h>
#include <sys/socket.h>

namespace djinn::bench {

bool SendAll(int socket, const void* bytes, size_t size) {
  const char* next = static_cast<const char*>(bytes);
  while (size > 0) {
    const ssize_t count = send(socket, next, size, MSG_NOSIGNAL);
    if (count <= 0) return false;
    next += count;
    size -= static_cast<size_t>(count);
  }
  return true;
}

bool ReceiveAll(int socket, void* bytes, size_t size) {
  char* next = static_cast<char*>(bytes);
  while (size > 0) {
    const ssize_t count = recv(socket, next, size, 0);
    if (count <= 0) return false;
    next += count;
    size -= static_cast<size_t>(count);
  }
  return true;
}

void* MapFresh(size_t size) {
  void* bytes = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return bytes == MAP_FAILED ? nullptr : bytes;
}

void Unmap(void* bytes, size_t size) { munmap(bytes, size); }

}  // namespace djinn::bench
