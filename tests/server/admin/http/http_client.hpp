// An HTTP client that sends arbitrary bytes, also invalid requests.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace gpunbd::server::admin::test {

class HttpClient {
 public:
    // Sends the text after it has connected.
    explicit HttpClient(const std::string& path, std::string_view text = {});
    HttpClient(const char* address, std::uint16_t port);
    ~HttpClient();
    HttpClient(const HttpClient&) = delete;
    HttpClient& operator=(const HttpClient&) = delete;

    // Returns false if the server has closed the connection.
    bool send(std::string_view text) const;
    // Reads until `end` or the end of the connection. Returns all bytes read.
    std::string read_until(std::string_view end);
    // Reads the next complete response.
    std::string answer(bool only_head = false);
    // Reads until the end of the connection.
    std::string rest();
    int fd() const { return fd_; }

 private:
    bool read_more();

    int fd_ = -1;
    std::string read_;
};

// The status code; 0: not an HTTP response.
int status_of(std::string_view answer);
std::string get(std::string_view target, std::string_view fields = "");
std::string post(std::string_view target, std::string_view body,
                 std::string_view fields = "Content-Type: application/json\r\n");

}  // namespace gpunbd::server::admin::test
