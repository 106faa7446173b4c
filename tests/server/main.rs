//! Scenarios against the real server process over real sockets, on tiny models.

mod articles;
mod ascend;
mod bad_input;
mod bad_server;
mod bench;
mod crowds;
mod fault_matrix;
mod faults;
mod http;
mod invariance;
mod isolation;
mod leaving;
mod load;
mod management;
mod mindie;
mod operations;
mod process;
mod records;
mod replay;
mod secrets;
mod structured;
mod tgi;
mod tls;
mod tools;
mod under_load;
