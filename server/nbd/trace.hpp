// The times that requests spend in each stage, measured by one worker.
#pragma once

#include <string>
#include <vector>

#include "protocol/constants.hpp"
#include "storage/base/histogram.hpp"
#include "storage/devices/channel.hpp"

namespace gpunbd::server {

struct Trace {
    storage::Histogram received;     // received -> validated
    storage::Histogram payload;      // a WRITE is received -> its payload is complete
    storage::ChannelTrace channels;  // a copy queued -> submitted -> completed
    storage::Histogram sent;         // a reply is queued -> the socket has its last byte
    storage::Histogram read;         // received -> the whole answer is queued
    storage::Histogram write;        // likewise, with its data in device memory

    void answered(protocol::CommandType type, storage::TraceClock::duration took) {
        if (type == protocol::CommandType::read) read.record(took);
        if (type == protocol::CommandType::write) write.record(took);
    }
};

// A table with one line per stage, at most 80 columns, without a final newline.
std::string describe_traces(const std::vector<const Trace*>& traces);

}  // namespace gpunbd::server
