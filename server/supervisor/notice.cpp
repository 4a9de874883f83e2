#include "server/supervisor/notice.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <system_error>
#include <utility>

namespace gpunbd::server {

namespace {

[[noreturn]] void fail(const char* what) {
    throw std::system_error(errno, std::generic_category(), what);
}

void take_control(const msghdr& header, NoticeSocket::Datagram& out) {
    for (const cmsghdr* each = CMSG_FIRSTHDR(&header); each != nullptr;
         each = CMSG_NXTHDR(const_cast<msghdr*>(&header), const_cast<cmsghdr*>(each))) {
        if (each->cmsg_level != SOL_SOCKET) continue;
        if (each->cmsg_type == SCM_RIGHTS) {
            out.count = (each->cmsg_len - CMSG_LEN(0)) / sizeof(int);
            for (std::size_t i = 0; i != out.count; ++i) {
                int received = -1;
                std::memcpy(&received, CMSG_DATA(each) + i * sizeof received, sizeof received);
                out.descriptors[i] = OwnedFd(received);
            }
        } else if (each->cmsg_type == SCM_CREDENTIALS) {
            ucred sender{};
            std::memcpy(&sender, CMSG_DATA(each), sizeof sender);
            out.sender = sender.pid;
        }
    }
}

template <class Action>
void for_each_line(std::string_view text, Action action) {
    while (!text.empty()) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        action(text.substr(0, end));
        text.remove_prefix(std::min(end + 1, text.size()));
    }
}

pid_t pid_of(std::string_view digits) {
    pid_t pid = 0;
    const char* const end = digits.data() + digits.size();
    const auto [stop, error] = std::from_chars(digits.data(), end, pid);
    return error == std::errc{} && stop == end && pid > 0 ? pid : -1;
}

}  // namespace

NoticeSocket::NoticeSocket()
    : socket_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
    if (socket_.get() < 0) fail("socket");
    const int on = 1;
    if (::setsockopt(socket_.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof on) != 0) {
        fail("SO_PASSCRED");
    }
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    auto* const plain = reinterpret_cast<sockaddr*>(&address);
    if (::bind(socket_.get(), plain, sizeof address.sun_family) != 0) fail("bind");
    socklen_t length = sizeof address;
    if (::getsockname(socket_.get(), plain, &length) != 0) fail("getsockname");
    address_.assign(address.sun_path, length - offsetof(sockaddr_un, sun_path));
    address_[0] = '@';
}

OwnedFd NoticeSocket::Datagram::take() { return std::move(descriptors[--count]); }

bool NoticeSocket::receive(Datagram& out) {
    alignas(cmsghdr) std::array<char, CMSG_SPACE(NotifySocket::max_descriptors * sizeof(int)) +
                                          CMSG_SPACE(sizeof(ucred))>
        control{};
    iovec into{.iov_base = text_.data(), .iov_len = text_.size()};
    msghdr header{};
    header.msg_iov = &into;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    ssize_t length = 0;
    do {
        length = ::recvmsg(socket_.get(), &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    } while (length < 0 && errno == EINTR);
    if (length < 0) return false;
    take_control(header, out);
    out.text = {text_.data(), static_cast<std::size_t>(length)};
    out.whole = (header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0;
    return true;
}

ExitPipe::ExitPipe() {
    std::array<int, 2> ends{-1, -1};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) return;
    supervisors_end_.emplace(ends[0]);
    own_end_.emplace(ends[1]);
}

std::optional<std::string> ExitPipe::hand_over(const NotifySocket& supervisor) {
    if (!supervisors_end_) return std::nullopt;
    const std::array<int, 1> sent{supervisors_end_->get()};
    auto wrong = supervisor.send(exit_pipe_line, sent);
    supervisors_end_.reset();
    return wrong;
}

Notice read_notice(std::string_view text) {
    constexpr std::string_view name = "FDNAME=";
    constexpr std::string_view main_pid = "MAINPID=";
    Notice out;
    for_each_line(text, [&](std::string_view line) {
        out.store |= line == "FDSTORE=1";
        out.remove |= line == "FDSTOREREMOVE=1";
        out.ready |= line == "READY=1";
        out.stopping |= line == "STOPPING=1";
        out.exit_pipe |= line == exit_pipe_line;
        if (line.starts_with(name)) out.name = line.substr(name.size());
        if (line.starts_with(main_pid)) out.main_pid = pid_of(line.substr(main_pid.size()));
    });
    return out;
}

std::string to_pass_on(std::string_view text) {
    constexpr std::array<std::string_view, 5> passed{
        "READY=", "RELOADING=", "MONOTONIC_USEC=", "STATUS=", "EXTEND_TIMEOUT_USEC="};
    std::string out;
    for_each_line(text, [&](std::string_view line) {
        const bool wanted = std::any_of(passed.begin(), passed.end(), [&](std::string_view each) {
            return line.starts_with(each);
        });
        if (!wanted) return;
        if (!out.empty()) out += '\n';
        out += line;
    });
    return out;
}

}  // namespace gpunbd::server
