// What a server tells, second by second: from the stream of its admin endpoint or, where it has
// none, by asking again. One that goes away is called until it is back.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/command_line.hpp"
#include "server/client/deadline.hpp"
#include "server/client/failure.hpp"
#include "server/listening/owned_fd.hpp"
#include "server/status/admin_server.hpp"
#include "server/status/event_reader.hpp"
#include "server/status/http_answer.hpp"
#include "server/status/snapshot.hpp"
#include "server/status/top_page.hpp"

namespace gpunbd::status {

class Feed {
 public:
    Feed(const config::AskedServer& asked, const std::vector<std::string>& folders)
        : asked_(asked), folders_(folders) {}

    // The first answer; a failure: there is no such server, or it does not answer.
    std::optional<Failure> begin();
    // Readable where step() is to be called; -1: only time counts.
    int fd() const;
    // When step() is to be called at the latest.
    client::Deadline next() const { return next_; }
    // True: there is something new.
    bool step();
    // How it stands now.
    const Picture& picture();

 private:
    // An open answer of the stream.
    struct Stream {
        server::OwnedFd fd;
        HttpAnswer answer;
        EventReader events;
    };
    std::optional<Failure> find();
    std::optional<Failure> open();
    Or<bool> read_stream();
    std::optional<Failure> ask_again();
    void take(Tick tick);
    void lose(const Failure& failed);

    const config::AskedServer asked_;
    const std::vector<std::string> folders_;
    std::optional<AdminServer> server_;
    std::optional<Stream> stream_;
    bool without_stream_ = false;
    Picture picture_;
    bool has_tick_ = false;
    client::Deadline next_{};
    std::optional<client::Clock::time_point> lost_;
};

}  // namespace gpunbd::status
