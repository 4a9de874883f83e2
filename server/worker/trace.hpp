// The trace: where the time of requests goes, stage by stage, as one worker sees it.
#pragma once

#include <string>
#include <vector>

#include "protocol/constants.hpp"
#include "storage/devices/channel.hpp"
#include "storage/histogram.hpp"

namespace gpunbd::server {

struct Trace {
    storage::Histogram received;     // taken off the socket -> its turn comes
    storage::Histogram payload;      // a WRITE is taken off the socket -> its payload is there
    storage::ChannelTrace channels;  // a copy queued -> submitted -> completed
    storage::Histogram sent;         // an answer is ready -> the socket has its last byte
    storage::Histogram read;         // taken off the socket -> all of the answer is ready
    storage::Histogram write;        // the same, for a WRITE: its data is in device memory

    void answered(protocol::CommandType type, storage::TraceClock::duration took) {
        if (type == protocol::CommandType::read) read.record(took);
        if (type == protocol::CommandType::write) write.record(took);
    }
};

// A table for people, one line a stage, at most 80 columns; the last line has no end.
std::string describe_traces(const std::vector<const Trace*>& traces);

}  // namespace gpunbd::server
