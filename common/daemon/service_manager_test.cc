#include "common/daemon/service_manager.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

// Holds the socket of a service manager.
class ServiceManagerTest : public testing::Test {
 protected:
  ~ServiceManagerTest() override {
    unsetenv("NOTIFY_SOCKET");
    if (fd_ >= 0) close(fd_);
  }
  // Binds the socket; an '@' at the beginning makes the name abstract.
  void Bind(std::string name) {
    setenv("NOTIFY_SOCKET", name.c_str(), 1);
    if (name[0] == '@') name[0] = 0;
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    ASSERT_LT(name.size(), sizeof(address.sun_path));
    std::memcpy(address.sun_path, name.data(), name.size());
    fd_ = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ASSERT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address),
                   offsetof(sockaddr_un, sun_path) + name.size()),
              0);
  }
  std::string Receive() {
    char text[64];
    const ssize_t size = recv(fd_, text, sizeof(text), MSG_DONTWAIT);
    return size < 0 ? "" : std::string(text, size);
  }

 private:
  int fd_ = -1;
};

TEST_F(ServiceManagerTest, WithoutSocketReturnsOk) {
  unsetenv("NOTIFY_SOCKET");
  EXPECT_EQ(NotifyReady(), absl::OkStatus());
}

TEST_F(ServiceManagerTest, SocketInTheFileSystemIsTold) {
  // Short enough for a socket's name.
  char folder[] = "/tmp/djinn-notify-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  const std::string path = absl::StrCat(folder, "/socket");
  Bind(path);
  EXPECT_EQ(NotifyReady(), absl::OkStatus());
  EXPECT_EQ(Receive(), "READY=1");
  unlink(path.c_str());
  rmdir(folder);
}

TEST_F(ServiceManagerTest, AbstractSocketIsTold) {
  // Processes of other sandboxes may share the names.
  char folder[] = "/tmp/djinn-notify-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  Bind(absl::StrCat("@", folder));
  EXPECT_EQ(NotifyReady(), absl::OkStatus());
  EXPECT_EQ(Receive(), "READY=1");
  rmdir(folder);
}

TEST_F(ServiceManagerTest, SocketThatIsNotThereIsAnError) {
  setenv("NOTIFY_SOCKET", "/no/such/socket", 1);
  EXPECT_TRUE(absl::IsNotFound(NotifyReady()));
}

TEST_F(ServiceManagerTest, NameThatIsNoSocketIsRefused) {
  for (const std::string& name :
       {std::string(), std::string("vsock:2:1"), "/" + std::string(200, 'x')}) {
    setenv("NOTIFY_SOCKET", name.c_str(), 1);
    EXPECT_TRUE(absl::IsInvalidArgument(NotifyReady())) << name;
  }
}

}  // namespace
}  // namespace djinn
