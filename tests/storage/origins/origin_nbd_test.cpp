// Requests to an NBD server that ends connections. tests/integration/test_origin_nbd.py has more.
#include "storage/origins/origin_nbd.hpp"

#include <doctest/doctest.h>
#include <endian.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "storage/base/owned_fd.hpp"
#include "storage/origins/libnbd.hpp"
#include "tests/temporary_folder.hpp"

namespace gpunbd::storage::test {
namespace origins_at_nbd_servers {

bool receive_all(const OwnedFd& from, auto& into) {
    return ::recv(from.get(), &into, sizeof into, MSG_WAITALL) == ssize_t{sizeof into};
}

// It has one connection for each client, and ends it at a read of the first block.
class BadBlockServer {
 public:
    explicit BadBlockServer(const std::string& path)
        : listener_(::socket(AF_UNIX, SOCK_STREAM, 0)) {
        sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
        REQUIRE(path.size() < sizeof address.sun_path);
        std::memcpy(address.sun_path, path.data(), path.size());
        REQUIRE(::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address),
                       sizeof address) == 0);
        REQUIRE(::listen(listener_.get(), 16) == 0);
        accepts_ = std::jthread([this] {
            std::vector<std::jthread> all;
            for (OwnedFd one = accept(); one; one = accept()) {
                all.emplace_back([fd = std::move(one)] { serve(fd); });
            }
        });
    }
    ~BadBlockServer() { ::shutdown(listener_.get(), SHUT_RDWR); }

    static constexpr std::size_t block = 4096;
    static constexpr std::uint64_t size = 16 * block;

 private:
    OwnedFd accept() const { return OwnedFd(::accept(listener_.get(), nullptr, nullptr)); }

    static void serve(const OwnedFd& fd) {
        struct [[gnu::packed]] {
            std::array<char, 8> magic{'N', 'B', 'D', 'M', 'A', 'G', 'I', 'C'};
            std::uint64_t is_old = htobe64(0x00420281861253);
            std::uint64_t bytes = htobe64(size);
            std::uint32_t flags = htobe32(3);  // flags are valid, read-only
            std::array<char, 124> reserved{};
        } hello;
        ::send(fd.get(), &hello, sizeof hello, MSG_NOSIGNAL);
        struct [[gnu::packed]] {
            std::uint32_t magic;
            std::uint16_t flags;
            std::uint16_t type;
            std::uint64_t cookie;
            std::uint64_t offset;
            std::uint32_t length;
        } request;
        while (receive_all(fd, request) && request.type == 0 && request.offset != 0) {
            struct [[gnu::packed]] {
                std::uint32_t magic = htobe32(0x67446698);
                std::uint32_t error = 0;
                std::uint64_t cookie = 0;
                std::array<char, block> data{};
            } reply;
            reply.cookie = request.cookie;
            ::send(fd.get(), &reply, sizeof reply, MSG_NOSIGNAL);
        }
    }

    const OwnedFd listener_;
    std::jthread accepts_;
};

TEST_CASE("NBD origin: a read that ends each connection fails, also if other calls reconnect") {
    std::string why;
    if (Libnbd::load(why) == nullptr) {
        MESSAGE("skipped: ", why);
        return;
    }
    const gpunbd::test::TemporaryFolder folder;
    const BadBlockServer server(folder.path("socket"));
    auto opened = OriginNbd::open("nbd+unix:///?socket=" + folder.path("socket"), false,
                                  {.reconnect = std::chrono::milliseconds(1'000)});
    REQUIRE(std::holds_alternative<std::unique_ptr<OriginNbd>>(opened));
    OriginNbd& origin = *std::get<std::unique_ptr<OriginNbd>>(opened);
    std::atomic<bool> has_ended{false};
    const std::jthread other([&] {
        std::array<std::byte, BadBlockServer::block> memory{};
        while (!has_ended) origin.read(BadBlockServer::block, memory);
    });
    std::array<std::byte, BadBlockServer::block> memory{};
    CHECK(origin.read(0, memory));
    has_ended = true;
    CHECK_FALSE(origin.read(BadBlockServer::block, memory));
}

}  // namespace origins_at_nbd_servers
}  // namespace gpunbd::storage::test
