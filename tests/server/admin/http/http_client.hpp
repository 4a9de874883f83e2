// An HTTP client that sends arbitrary bytes, also invalid requests.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/test.hpp"

namespace gpunbd::server::admin::test {

class HttpClient {
 public:
    // Sends the text after it has connected.
    explicit HttpClient(const std::string& path, std::string_view text = {})
        : fd_(::socket(AF_UNIX, SOCK_STREAM, 0)) {
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        std::memcpy(address.sun_path, path.data(), path.size());
        REQUIRE(::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
        send(text);
    }
    HttpClient(const char* numeric, std::uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_port = htons(port);
        REQUIRE(::inet_pton(AF_INET, numeric, &address.sin_addr) == 1);
        REQUIRE(::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    }
    ~HttpClient() { ::close(fd_); }
    HttpClient(const HttpClient&) = delete;
    HttpClient& operator=(const HttpClient&) = delete;

    // Returns false if the server has closed the connection.
    bool send(std::string_view text) const {
        while (!text.empty()) {
            const ssize_t sent = ::send(fd_, text.data(), text.size(), MSG_NOSIGNAL);
            if (sent <= 0) return false;
            text.remove_prefix(static_cast<std::size_t>(sent));
        }
        return true;
    }
    // Reads until `end` or the end of the connection. Returns all bytes read.
    std::string read_until(std::string_view end) {
        std::size_t at = 0;
        while ((at = read_.find(end)) == std::string::npos) {
            if (!read_more()) return std::exchange(read_, {});
        }
        std::string out = read_.substr(0, at + end.size());
        read_.erase(0, out.size());
        return out;
    }
    // Reads the next complete response.
    std::string answer(bool only_head = false) {
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
    // Reads until the end of the connection.
    std::string rest() {
        while (read_more()) {
        }
        return std::exchange(read_, {});
    }
    int fd() const { return fd_; }

 private:
    bool read_more() {
        char bytes[4096];
        const ssize_t got = ::read(fd_, bytes, sizeof bytes);
        if (got <= 0) return false;
        read_.append(bytes, static_cast<std::size_t>(got));
        return true;
    }

    int fd_ = -1;
    std::string read_;
};

// The status code; 0: not an HTTP response.
inline int status_of(std::string_view answer) {
    constexpr std::string_view start = "HTTP/1.1 ";
    return answer.starts_with(start) ? std::stoi(std::string(answer.substr(start.size(), 3))) : 0;
}

inline std::string get(std::string_view target, std::string_view fields = "") {
    return "GET " + std::string(target) + " HTTP/1.1\r\nHost: localhost\r\n" + std::string(fields) +
           "\r\n";
}

inline std::string post(std::string_view target, std::string_view body,
                        std::string_view fields = "Content-Type: application/json\r\n") {
    return "POST " + std::string(target) + " HTTP/1.1\r\nHost: localhost\r\n" +
           std::string(fields) + "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
           std::string(body);
}

}  // namespace gpunbd::server::admin::test
