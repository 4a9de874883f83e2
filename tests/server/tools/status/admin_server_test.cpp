// Servers that are found without a name.
#include "server/tools/status/admin_server.hpp"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/temporary_folder.hpp"
#include "tests/test.hpp"
#include "tests/unprivileged_user.hpp"

namespace gpunbd::status {
namespace {

TEST_CASE("admin server: a user learns that a server may run which it may not reach") {
    const gpunbd::test::TemporaryFolder made;
    const std::string& folder = made.path();
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string socket = folder + "/admin-1.sock";
    std::memcpy(address.sun_path, socket.data(), socket.size());
    const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
    REQUIRE(::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    const auto failure_with = [&](mode_t of_folder, mode_t of_socket) {
        REQUIRE(::chmod(socket.c_str(), of_socket) == 0);
        REQUIRE(::chmod(folder.c_str(), of_folder) == 0);
        const gpunbd::test::UnprivilegedUser other;
        const auto found = find_server({}, {folder});
        REQUIRE(!found);
        return found.error().text;
    };
    const std::string run = "; run this as the server's user, or as root";
    const std::string closed = "a server may run, but this user may not open ";
    CHECK(failure_with(0755, 0000).starts_with(closed + socket + run));
    CHECK(failure_with(0000, 0666).starts_with(closed + folder + run));
    CHECK(failure_with(0755, 0666).starts_with("no server was found in " + folder));
    ::close(fd);
}

}  // namespace
}  // namespace gpunbd::status
