#include "server/net/address_error.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string_view>

namespace gpunbd::server {

namespace {

namespace fs = std::filesystem;

constexpr const char* listening = "0A";  // TCP_LISTEN in /proc/net/tcp

// The bytes of an address in /proc/net/tcp: words of 32 bits in the host's order.
std::string bytes_of(std::string_view hex) {
    std::string bytes;
    for (; hex.size() >= 8; hex.remove_prefix(8)) {
        std::uint32_t word = 0;
        std::from_chars(hex.data(), hex.data() + 8, word, 16);
        char raw[sizeof word];
        std::memcpy(raw, &word, sizeof word);
        bytes.append(raw, sizeof word);
    }
    return bytes;
}

bool is_wildcard(const std::string& bytes) {
    return std::all_of(bytes.begin(), bytes.end(), [](char c) { return c == 0; });
}

// Inodes of the sockets that listen on `port` at this address, or at every address.
void add_inodes(const char* table, const std::string& address, std::uint16_t port,
                std::set<std::string>& inodes) {
    std::ifstream file(table);
    std::string line;
    std::getline(file, line);  // headings
    while (std::getline(file, line)) {
        std::istringstream words(line);
        std::string number, local, remote, state, queues, timer, retransmits, uid, timeout, inode;
        words >> number >> local >> remote >> state >> queues >> timer >> retransmits >> uid >>
            timeout >> inode;
        const std::size_t colon = local.find(':');
        if (state != listening || colon == std::string::npos) continue;
        if (local.substr(colon + 1) != fmt::format("{:04X}", port)) continue;
        const std::string there = bytes_of(std::string_view(local).substr(0, colon));
        if (there == address || is_wildcard(there) || is_wildcard(address)) inodes.insert(inode);
    }
}

}  // namespace

std::string Holder::by() const {
    return pid == 0 ? ""
                    : fmt::format(" by {} (pid {})", program.empty() ? "a program" : program, pid);
}

Holder process(pid_t pid) {
    Holder holder{.pid = pid, .program = {}};
    std::ifstream name(fmt::format("/proc/{}/comm", pid));
    std::getline(name, holder.program);
    return holder;
}

Holder tcp_port_holder(const std::string& address_bytes, std::uint16_t port) {
    std::set<std::string> inodes;
    add_inodes("/proc/net/tcp", address_bytes, port, inodes);
    add_inodes("/proc/net/tcp6", address_bytes, port, inodes);
    if (inodes.empty()) return {};
    std::error_code error;
    for (const auto& entry : fs::directory_iterator("/proc", error)) {
        const std::string name = entry.path().filename();
        pid_t pid = 0;
        if (std::from_chars(name.data(), name.data() + name.size(), pid).ec != std::errc{})
            continue;
        std::error_code closed;  // the process has ended or belongs to another user
        fs::directory_iterator fds(entry.path() / "fd", closed);
        for (; !closed && fds != fs::directory_iterator(); fds.increment(closed)) {
            std::error_code unread;
            const std::string target = fs::read_symlink(fds->path(), unread);
            constexpr std::string_view prefix = "socket:[";
            if (!target.starts_with(prefix)) continue;
            if (inodes.contains(target.substr(prefix.size(), target.size() - prefix.size() - 1))) {
                return process(pid);
            }
        }
    }
    return {};
}

}  // namespace gpunbd::server
