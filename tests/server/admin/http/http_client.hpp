// A client of HTTP that sends what it is told, also what is none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace gpunbd::server::admin::test {

class HttpClient {
 public:
    explicit HttpClient(const std::string& path);
    HttpClient(const char* address, std::uint16_t port);
    ~HttpClient();
    HttpClient(const HttpClient&) = delete;
    HttpClient& operator=(const HttpClient&) = delete;

    // False: the other side has gone.
    bool send(std::string_view text) const;
    // Whatever comes until that has come or the other side has ended; what it then has read.
    std::string read_until(std::string_view end);
    // The next answer, whole.
    std::string answer(bool only_head = false);
    // Until the other side has ended.
    std::string rest();
    int fd() const { return fd_; }

 private:
    bool read_more();

    int fd_ = -1;
    std::string read_;
};

// The number in the first line; 0: there is none.
int status_of(std::string_view answer);
std::string get(std::string_view target, std::string_view fields = "");
std::string post(std::string_view target, std::string_view body,
                 std::string_view fields = "Content-Type: application/json\r\n");

}  // namespace gpunbd::server::admin::test
