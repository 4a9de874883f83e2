#include "tests/server/admin/http/http_client.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/test.hpp"

namespace gpunbd::server::admin::test {

HttpClient::HttpClient(const std::string& path, std::string_view text)
    : fd_(::socket(AF_UNIX, SOCK_STREAM, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    REQUIRE(::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    send(text);
}

HttpClient::HttpClient(const char* numeric, std::uint16_t port)
    : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    REQUIRE(::inet_pton(AF_INET, numeric, &address.sin_addr) == 1);
    REQUIRE(::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
}

HttpClient::~HttpClient() { ::close(fd_); }

bool HttpClient::send(std::string_view text) const {
    while (!text.empty()) {
        const ssize_t sent = ::send(fd_, text.data(), text.size(), MSG_NOSIGNAL);
        if (sent <= 0) return false;
        text.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
}

bool HttpClient::read_more() {
    char bytes[4096];
    const ssize_t got = ::read(fd_, bytes, sizeof bytes);
    if (got <= 0) return false;
    read_.append(bytes, static_cast<std::size_t>(got));
    return true;
}

std::string HttpClient::read_until(std::string_view end) {
    std::size_t at = 0;
    while ((at = read_.find(end)) == std::string::npos) {
        if (!read_more()) return std::exchange(read_, {});
    }
    std::string out = read_.substr(0, at + end.size());
    read_.erase(0, out.size());
    return out;
}

std::string HttpClient::answer(bool only_head) {
    std::string out = read_until("\r\n\r\n");
    constexpr std::string_view field = "Content-Length: ";
    const std::size_t at = out.find(field);
    if (only_head || at == std::string::npos) return out;
    const std::size_t length = std::stoul(out.substr(at + field.size()));
    while (read_.size() < length && read_more()) {
    }
    out += read_.substr(0, length);
    read_.erase(0, length);
    return out;
}

std::string HttpClient::rest() {
    while (read_more()) {
    }
    return std::exchange(read_, {});
}

int status_of(std::string_view answer) {
    constexpr std::string_view start = "HTTP/1.1 ";
    return answer.starts_with(start) ? std::stoi(std::string(answer.substr(start.size(), 3))) : 0;
}

std::string get(std::string_view target, std::string_view fields) {
    return "GET " + std::string(target) + " HTTP/1.1\r\nHost: localhost\r\n" + std::string(fields) +
           "\r\n";
}

std::string post(std::string_view target, std::string_view body, std::string_view fields) {
    return "POST " + std::string(target) + " HTTP/1.1\r\nHost: localhost\r\n" +
           std::string(fields) + "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
           std::string(body);
}

}  // namespace gpunbd::server::admin::test
