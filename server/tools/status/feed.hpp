// What a server tells, second by second: from the stream of its admin endpoint or, where it has
// none, by asking again. One that goes away is called until it is back.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "server/tools/client/deadline.hpp"
#include "server/tools/client/failure.hpp"
#include "server/tools/status/admin_server.hpp"
#include "server/tools/status/event_reader.hpp"
#include "server/tools/status/http_answer.hpp"
#include "server/tools/status/server_selection.hpp"
#include "server/tools/status/snapshot.hpp"
#include "server/tools/status/top_page.hpp"
#include "storage/base/owned_fd.hpp"

namespace gpunbd::status {

class Feed {
 public:
    Feed(const ServerSelection& asked, const std::vector<std::string>& folders)
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
        OwnedFd fd;
        HttpAnswer answer;
        EventReader events;
    };
    std::optional<Failure> find();
    std::optional<Failure> open();
    Or<bool> read_stream();
    std::optional<Failure> ask_again();
    void take(Tick tick);
    void lose(const Failure& failed);

    const ServerSelection asked_;
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
