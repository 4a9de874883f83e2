// Standard input, output and error. Lost output is an error, and no socket gets the number of a
// closed stream.
#pragma once

namespace gpunbd::server {

// Call it before anything else is opened. Writing to a stream that was closed still fails.
void occupy_closed_streams();
// Flushes standard output. Returns false, and prints the reason to standard error, if output was
// lost.
bool finish_output();
// Prints that writing to standard output failed with this errno.
void report_lost_output(int error);

}  // namespace gpunbd::server
