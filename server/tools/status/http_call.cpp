#include "server/tools/status/http_call.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "server/tools/status/nbd_socket.hpp"
#include "server/tools/status/snapshot.hpp"

namespace gpunbd::status {
namespace {

const Failure late{"no response within the time limit"};

std::optional<Failure> send_all(int fd, std::string_view bytes, client::Deadline until) {
    while (!bytes.empty()) {
        const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (sent >= 0) {
            bytes.remove_prefix(static_cast<std::size_t>(sent));
        } else if (errno == EAGAIN) {
            if (!client::wait_for_socket(fd, POLLOUT, until)) return late;
        } else if (errno != EINTR) {
            return failure("the connection to the server", errno);
        }
    }
    return std::nullopt;
}

std::optional<Failure> receive_whole(int fd, HttpAnswer& answer, client::Deadline until) {
    while (!answer.complete()) {
        if (!client::wait_for_socket(fd, POLLIN, until)) return late;
        const Expected<bool, Failure> received = receive(fd, answer);
        if (!received) return received.error();
        if (client::Clock::now() >= until && !answer.complete()) return late;
    }
    return std::nullopt;
}

Failure refusal(unsigned code, std::string_view body) {
    const std::string why = read_error(body);
    if (!why.empty()) return {fmt::format("the server refuses the request: {}", why)};
    if (code == 401 || code == 403) return {"the server requires a token; add --token FILE"};
    return {fmt::format("the server responds with HTTP status {}", code)};
}

}  // namespace

Expected<OwnedFd, Failure> send_request(const AdminServer& server, const HttpRequest& request,
                                        client::Deadline until) {
    Expected<OwnedFd, Failure> called = call(server, until);
    if (called) {
        const std::string text = http_request(request, server.host, server.token);
        if (auto failed = send_all(called->get(), text, until)) return std::move(*failed);
    }
    return called;
}

Expected<bool, Failure> receive(int fd, HttpAnswer& answer) {
    std::array<char, 65536> piece{};
    const ssize_t got = ::recv(fd, piece.data(), piece.size(), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (got < 0) return failure("the connection to the server", errno);
    auto failed =
        got == 0 ? answer.take_end() : answer.take({piece.data(), static_cast<std::size_t>(got)});
    if (failed) return std::move(*failed);
    return true;
}

namespace {

// Sends a request and receives its response over a connection, which it leaves open.
Expected<HttpAnswer, Failure> exchange_over(Expected<OwnedFd, Failure>& connection,
                                            const AdminServer& server, const HttpRequest& request,
                                            client::Deadline until) {
    connection = send_request(server, request, until);
    if (!connection) return connection.error();
    HttpAnswer answer(longest_response);
    auto failed = receive_whole(connection->get(), answer, until);
    if (failed && !answer.is_nbd()) {
        return Failure{fmt::format("{}: {}", server.address.text, failed->text)};
    }
    return answer;
}

}  // namespace

Expected<HttpAnswer, Failure> exchange(const AdminServer& server, const HttpRequest& request,
                                       client::Deadline until) {
    Expected<OwnedFd, Failure> connection;
    return exchange_over(connection, server, request, until);
}

Expected<std::string, Failure> get(const AdminServer& server, const HttpRequest& request,
                                   client::Deadline until) {
    Expected<OwnedFd, Failure> connection;
    Expected<HttpAnswer, Failure> received = exchange_over(connection, server, request, until);
    if (!received) return std::move(received).error();
    auto& answer = *received;
    if (answer.is_nbd()) {
        return answered_by_nbd(server, connection->get(), until);
    }
    std::string body = answer.take_body();
    if (answer.code() == 200) return success(std::move(body));
    constexpr unsigned replaced = 421;
    return Failure{
        .text = fmt::format("{}: {}", server.address.text, refusal(answer.code(), body).text),
        .response =
            answer.code() == replaced ? Failure::Response::replaced : Failure::Response::refused};
}

void pause_of_attempts() { std::this_thread::sleep_for(std::chrono::milliseconds(100)); }

Expected<std::string, Failure> repeat_while_replaced(
    const std::function<Expected<std::string, Failure>()>& attempt,
    const std::function<void()>& pause) {
    constexpr std::chrono::minutes longest_upgrade{2};  // see Upgrade
    std::optional<client::Deadline> until;
    for (;;) {
        Expected<std::string, Failure> result = attempt();
        if (result || result.error().response == Failure::Response::refused) return result;
        if (!until && result.error().response == Failure::Response::replaced) {
            until = client::Clock::now() + longest_upgrade;
            fmt::print(stderr, "gpunbd: the server is being replaced; waiting for its successor\n");
        }
        // In between, no server or two servers can be found.
        if (!until || client::Clock::now() >= *until) return result;
        pause();
    }
}

}  // namespace gpunbd::status
