// Measures the limit of the sockets: nbdload's client against a peer without the NBD protocol. The
// peer is a separate process with one thread per connection. It counts received bytes to find the
// end of requests, and sends constant memory with the length of replies.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/bench/connection.hpp"
#include "tests/bench/run_load.hpp"

namespace gpunbd::bench {
namespace {

constexpr const char* about =
    "Shows the limit of the sockets themselves, with the message shapes of NBD. Prints nbdload's "
    "JSON.";

// The message lengths of one connection, as seen by the peer.
struct Shape {
    std::size_t taken = 0;  // bytes of a received message
    std::size_t given = 0;  // payload bytes after the 16 bytes of a reply
};

constexpr std::size_t receive_buffer = 256 * 1024;
constexpr std::size_t max_replies = 512;  // per send; two iovecs each: IOV_MAX

void send_gathered(int fd, std::vector<iovec>& parts, std::size_t count) {
    std::size_t next = 0;
    while (next < count) {
        msghdr message{};
        message.msg_iov = parts.data() + next;
        message.msg_iovlen = count - next;
        const ssize_t sent = sendmsg(fd, &message, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0) return;
        auto left = static_cast<std::size_t>(sent);
        while (next < count && left >= parts[next].iov_len) left -= parts[next++].iov_len;
        if (next < count)
            parts[next] = {static_cast<std::byte*>(parts[next].iov_base) + left,
                           parts[next].iov_len - left};
    }
}

// Ends when the client disconnects. Only the cookie is evaluated, because the client matches
// replies by it.
void serve_raw(int fd, Shape shape) {
    std::vector<std::byte> buffer(receive_buffer);
    std::vector<std::byte> payload(std::max(shape.given, std::size_t{1}), std::byte{0x5a});
    const protocol::ReplyEncoder encoder;  // of simple replies
    std::vector<protocol::ReplyHeader> headers(max_replies);
    std::vector<iovec> parts(2 * max_replies);
    std::byte request[protocol::request_size];
    std::size_t into = 0;  // received bytes of the current message
    while (true) {
        const ssize_t got = recv(fd, buffer.data(), buffer.size(), 0);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return;
        std::size_t replies = 0;
        std::size_t used = 0;
        const auto flush = [&] {
            const auto stride = shape.given > 0 ? std::size_t{2} : std::size_t{1};
            for (std::size_t i = 0; i < replies; ++i) {
                parts[stride * i] = {headers[i].data(), protocol::simple_reply_size};
                if (stride == 2) parts[2 * i + 1] = {payload.data(), shape.given};
            }
            if (replies > 0) send_gathered(fd, parts, stride * replies);
            replies = 0;
        };
        const auto size = static_cast<std::size_t>(got);
        while (used < size) {
            if (into < sizeof(request)) {
                const auto head = std::min(sizeof(request) - into, size - used);
                std::memcpy(request + into, buffer.data() + used, head);
                used += head;
                into += head;
            }
            const auto body = std::min(shape.taken - into, size - used);
            used += body;
            into += body;
            if (into < shape.taken) break;
            into = 0;
            encoder.success(headers[replies],
                            {.type = protocol::CommandType::flush,
                             .cookie = protocol::load_be<std::uint64_t>(request + 8)});
            if (++replies == max_replies) flush();
        }
        flush();
    }
}

// A DISC has 28 bytes. For a peer that receives writes, it is the start of a message that is never
// completed.
[[noreturn]] void serve(std::vector<Socket> sockets, const std::vector<Shape>& shapes) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    {
        std::vector<std::jthread> threads;
        for (std::size_t i = 0; i < sockets.size(); ++i)
            threads.emplace_back([&, i] { serve_raw(sockets[i].fd(), shapes[i]); });
    }
    std::_Exit(0);
}

std::pair<std::vector<Socket>, std::vector<Socket>> connect_pairs(bool is_unix,
                                                                  std::uint64_t count) {
    std::pair<std::vector<Socket>, std::vector<Socket>> ends;
    Socket listener;
    config::NbdTarget address;
    if (!is_unix) {
        listener = Socket(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        sockaddr_in name{};
        name.sin_family = AF_INET;
        name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t length = sizeof(name);
        auto* generic = reinterpret_cast<sockaddr*>(&name);
        if (bind(listener.fd(), generic, length) != 0 || listen(listener.fd(), 16) != 0 ||
            getsockname(listener.fd(), generic, &length) != 0)
            fail_errno("listen");
        address.host = "127.0.0.1";
        address.port = std::to_string(ntohs(name.sin_port));
    }
    for (std::uint64_t i = 0; i < count; ++i) {
        if (is_unix) {
            int pair[2];
            if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
                fail_errno("socketpair");
            ends.first.emplace_back(pair[0]);
            ends.second.emplace_back(pair[1]);
        } else {
            ends.first.push_back(connect_to(address));
            ends.second.emplace_back(accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
            if (ends.second.back().fd() < 0) fail_errno("accept");
            const int one = 1;
            setsockopt(ends.second.back().fd(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        }
    }
    return ends;
}

int run(int argc, char** argv) {
    LoadOptions options;
    std::string transport = "unix";
    CLI::App app(about, "socket_ceiling");
    add_common_options(app, options);
    app.add_option("--transport", transport, "unix or tcp (unix)")
        ->check(CLI::IsMember({"unix", "tcp"}));
    if (const auto status = parse(app, argc, argv)) return *status;
    const bool is_unix = transport == "unix";
    if (options.connections == 0) fail("--connections must be 1 or more");
    if (options.window.measured == 0) fail("--seconds must be above 0");
    const ExportInfo info{.size = std::uint64_t{1} << 30, .flags = 0};
    if (options.size == 0 || options.size > info.max_payload) fail("--size must be 1 to 32M");

    std::vector<Shape> shapes;
    for (std::uint64_t i = 0; i < options.connections; ++i) {
        const bool write = options.writes(i);
        const auto size = static_cast<std::size_t>(options.size);
        shapes.push_back(
            {.taken = protocol::request_size + (write ? size : 0), .given = write ? 0 : size});
    }
    auto [clients, servers] = connect_pairs(is_unix, options.connections);
    std::fflush(nullptr);
    const pid_t child = fork();
    if (child < 0) fail_errno("fork");
    if (child == 0) {
        clients.clear();
        serve(std::move(servers), shapes);
    }
    servers.clear();
    options.window.server = child;
    int status = 2;
    try {
        status = run_load(options, info, std::move(clients), "socket_ceiling", transport);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "socket_ceiling: %s\n", error.what());
    }
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    return status;
}

}  // namespace
}  // namespace gpunbd::bench

int main(int argc, char** argv) {
    try {
        return gpunbd::bench::run(argc, argv);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "socket_ceiling: %s\n", error.what());
        return 2;
    }
}
